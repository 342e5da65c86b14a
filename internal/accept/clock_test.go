package accept

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestTimeThatOthersTookDoesNotCount(t *testing.T) {
	const s = time.Second
	all := time.Duration(runtime.NumCPU())
	for name, c := range map[string]struct {
		usage cpuUsage
		want  time.Duration
	}{
		"it waits for a device, or hangs":         {cpuUsage{}, 10 * s},
		"it has what it asks for":                 {cpuUsage{used: 7 * s}, 10 * s},
		"it has all processors, for more threads": {cpuUsage{used: 10 * s * all, waited: 80 * s * all}, 10 * s},
		"other programs have most of them":        {cpuUsage{used: s, waited: 9 * s}, s},
		"it had none at all":                      {cpuUsage{waited: 10 * s}, 0},
	} {
		assert.InDelta(t, float64(c.want), float64(effectiveTime(c.usage, 10*s)), float64(s/2), name)
	}
}

func TestABudgetEndsAContextWithItsCause(t *testing.T) {
	cause := errors.New("over")
	began := time.Now()
	ctx, cancel := withRunningTime(context.Background(), 50*time.Millisecond, cause)
	defer cancel()
	<-ctx.Done() // nothing else is to be done: a hang counts
	assert.Equal(t, cause, context.Cause(ctx))
	assert.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)

	early, cancel := withRunningTime(context.Background(), time.Hour, cause)
	cancel()
	assert.Equal(t, context.Canceled, context.Cause(early))
}
