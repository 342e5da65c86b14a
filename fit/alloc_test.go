package fit_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
)

// TestAStepWithoutAHookAllocatesNothing checks that between records the loop adds no allocations to
// those of the step.
func TestAStepWithoutAHookAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	x, y := strategytest.Batch(0)
	var batch []any
	for _, value := range []*tensors.Tensor{x, y} {
		v, err := s.SplitBatch(ctx, value, logical.Annotation{}, false)
		require.NoError(t, err)
		defer v.Close()
		batch = append(batch, v)
	}
	step := dense(s, 2)
	const first, last = 20, 420
	bare := testing.AllocsPerRun(last-first, func() {
		if _, err := step.Run(ctx, batch...); err != nil {
			t.Fatal(err)
		}
	})
	var before, after runtime.MemStats
	data := fit.Batches(func(yield func([]any, error) bool) {
		for i := 0; ; i++ {
			switch i {
			case first:
				runtime.ReadMemStats(&before)
			case last:
				runtime.ReadMemStats(&after)
			}
			if !yield(batch, nil) {
				return
			}
		}
	})
	result, err := fit.Run(ctx, step, data, fit.Options{Steps: last + 10, Every: 1 << 40},
		fit.Watch(watchdog.Options{}), fit.EarlyStop(fit.Loss, 1), fit.Checkpoint(t.TempDir(), 1<<40),
		fit.Each(1<<40, func(context.Context, *fit.State) error { return nil }))
	require.NoError(t, err)
	assert.Equal(t, int64(32*(last+10)), result.Rows)
	// The runtime and the plugin's callbacks allocate occasionally.
	assert.Less(t, float64(after.Mallocs-before.Mallocs)/(last-first), bare+0.2)
}
