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
		usage usage
		want  time.Duration
	}{
		"it waits for a device, or hangs":         {usage{}, 10 * s},
		"it has what it asks for":                 {usage{had: 7 * s}, 10 * s},
		"it has all processors, for more threads": {usage{had: 10 * s * all, waited: 80 * s * all}, 10 * s},
		"other programs have most of them":        {usage{had: s, waited: 9 * s}, s},
		"it had none at all":                      {usage{waited: 10 * s}, 0},
	} {
		assert.InDelta(t, float64(c.want), float64(counts(c.usage, 10*s)), float64(s/2), name)
	}
}

func TestABudgetEndsAContextWithItsCause(t *testing.T) {
	cause := errors.New("over")
	began := time.Now()
	ctx, cancel := within(context.Background(), 50*time.Millisecond, cause)
	defer cancel()
	<-ctx.Done() // nothing else is to be done: a hang counts
	assert.Equal(t, cause, context.Cause(ctx))
	assert.GreaterOrEqual(t, time.Since(began), 50*time.Millisecond)

	early, cancel := within(context.Background(), time.Hour, cause)
	cancel()
	assert.Equal(t, context.Canceled, context.Cause(early))
}
