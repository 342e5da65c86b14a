package fit_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/report/phase"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// cancels is an evaluator that interrupts the run before its batches.
type cancels struct {
	fit.Evaluator
	at     int
	cancel func()
}

func (c *cancels) Run(ctx context.Context, batch ...any) error {
	if c.at--; c.at == 0 {
		c.cancel()
	}
	return c.Evaluator.Run(ctx, batch...)
}

// TestAnInterruptInEachPhaseLosesNothing checks that the resumed run writes the table of an
// uninterrupted run.
func TestAnInterruptInEachPhaseLosesNothing(t *testing.T) {
	mine := errors.New("the machine is taken away")
	const steps = 8
	run := func(t *testing.T, ctx context.Context, dir string, opts strategy.Options,
		evaluator func(fit.Evaluator) fit.Evaluator, hooks ...fit.Hook) (fit.Result, error) {
		s := strategytest.New(t, 1, 1, opts)
		step, held := measured(s)
		var e fit.Evaluator = held
		if evaluator != nil {
			e = evaluator(held)
		}
		return fit.Run(ctx, step, fit.Dataset(dataset(t, 3).Repeat(-1)), fit.Options{Steps: steps, Every: 2, Resume: true},
			append([]fit.Hook{
				fit.CSV(filepath.Join(dir, "losses.csv")),
				fit.Evaluate("held", e, fit.Dataset(dataset(t, 2)), 4),
				fit.KeepBest(filepath.Join(dir, "best"), "held/loss"),
				fit.Checkpoint(filepath.Join(dir, "run"), 6)}, hooks...)...)
	}
	whole := t.TempDir()
	_, err := run(t, context.Background(), whole, strategy.Options{}, nil)
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join(whole, "losses.csv"))
	require.NoError(t, err)

	at := func(step int64, cancel func()) func(context.Context, *fit.State) error {
		return func(_ context.Context, s *fit.State) error {
			if s.Step() == step {
				cancel()
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		before bool
		opts   func(cancel func()) strategy.Options
		eval   func(fit.Evaluator, func()) fit.Evaluator
		hook   func(cancel func()) fit.Hook
		taken  int64
		saved  int64
	}{
		"before the first step": {before: true},
		"while compiling": {opts: func(cancel func()) strategy.Options {
			return strategy.Options{Phases: func(phase.Phase) { cancel() }}
		}},
		"while beginning": {hook: func(cancel func()) fit.Hook { return fit.Hook{Name: "x", Begin: at(0, cancel)} }},
		"in an evaluation": {eval: func(e fit.Evaluator, cancel func()) fit.Evaluator { return &cancels{e, 2, cancel} },
			taken: 4, saved: 4},
		"in a later evaluation": {eval: func(e fit.Evaluator, cancel func()) fit.Evaluator { return &cancels{e, 3, cancel} },
			taken: 8, saved: 8},
		"between steps": {hook: func(cancel func()) fit.Hook { return fit.Hook{Name: "x", Record: at(2, cancel)} },
			taken: 2, saved: 2},
		"while saving the best": {hook: func(cancel func()) fit.Hook {
			return fit.Hook{Name: "x", Save: func() ([]byte, error) { cancel(); return nil, nil }}
		}, taken: 4, saved: 4},
		"at the end": {hook: func(cancel func()) fit.Hook {
			return fit.Hook{Name: "x", End: func(context.Context, *fit.State, error) error { cancel(); return nil }}
		}, taken: 8, saved: 8},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ctx, stop := context.WithCancelCause(context.Background())
			cancel := func() { stop(mine) }
			if c.before {
				cancel()
			}
			var opts strategy.Options
			if c.opts != nil {
				opts = c.opts(cancel)
			}
			var eval func(fit.Evaluator) fit.Evaluator
			if c.eval != nil {
				eval = func(e fit.Evaluator) fit.Evaluator { return c.eval(e, cancel) }
			}
			var hooks []fit.Hook
			if c.hook != nil {
				hooks = append(hooks, c.hook(cancel))
			}
			result, err := run(t, ctx, dir, opts, eval, hooks...)
			assert.Equal(t, c.taken, result.Step)
			if name == "at the end" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorIs(t, err, mine)
				require.Equal(t, errkind.CancelledError, errkind.KindOf(err))
				var interrupted *interrupt.Error
				require.ErrorAs(t, err, &interrupted)
				assert.Equal(t, c.taken, interrupted.Step)
			}
			point, err := fit.LatestSnapshot(t.Context(), filepath.Join(dir, "run"))
			if c.saved == 0 {
				require.Error(t, err)
			} else {
				require.NoError(t, err)
				assert.Equal(t, c.saved, point.Step)
			}
			_, err = run(t, context.Background(), dir, strategy.Options{}, nil)
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(dir, "losses.csv"))
			require.NoError(t, err)
			assert.Equal(t, string(want), string(got))
		})
	}
}

var _ fit.Evaluator = (*train.Evaluation)(nil)
