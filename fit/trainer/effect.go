package trainer

import (
	"context"
	"sync/atomic"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/aot"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// effectChecker checks that -precision and -remat have an effect on the first training step that is
// traced. A later step may compute differently.
type effectChecker struct {
	precision precision.Policy
	remat     bool
	// precisionApplied and rematApplied are set once a training step uses the flag.
	precisionApplied, rematApplied atomic.Bool
}

// newEffectChecker registers a check that fails the trace of a training step if -precision or
// -remat has no effect.
func (f *Flags) newEffectChecker(s *strategy.TPUStrategy) *effectChecker {
	keep := f.Remat.RegionPolicy()
	e := &effectChecker{precision: f.Precision.WithDefaults(), remat: keep.Selective || keep.OnHost}
	engine.Internal(s).SetTrainingCheck(e.checkTrace)
	return e
}

func (e *effectChecker) checkTrace(g *graph.Graph) error {
	if precision.Applied(g) == e.precision {
		e.precisionApplied.Store(true)
	}
	if remat.Applied(g) {
		e.rematApplied.Store(true)
	}
	return e.checkApplied()
}

// checkApplied returns an error for a flag that has had no effect on any training step.
func (e *effectChecker) checkApplied() error {
	if e.precision != (precision.Policy{}) && !e.precisionApplied.Load() {
		return noEffectError("-precision", "the training step does not compute in its policy",
			"pass Flags.Precision to train.New as Options.Precision, or run the model of another step in "+
				"Flags.Precision.Forward")
	}
	if e.remat && !e.rematApplied.Load() {
		return noEffectError("-remat", "no operation of the model is in a block or a layer loop that recomputes activations",
			"build the layers in remat.Block(Flags.Keep, ...), or in a loop with loop.Options{Keep: Flags.Keep}")
	}
	return nil
}

// newHook returns a hook that applies the check to steps that are not traced, such as a step from a
// file.
func (e *effectChecker) newHook() fit.Hook {
	return fit.Hook{Name: "flags take effect", Record: func(_ context.Context, s *fit.State) error {
		if s.Step() == s.ResumedFrom() { // no step of this run was traced
			return nil
		}
		return e.checkApplied()
	}}
}

func noEffectError(flag, reason, hint string) error {
	return &errkind.Fault{Op: "trainer:", Subject: "flag " + flag, Reason: "it has no effect: " + reason, Hint: hint,
		Class: errkind.ValueError}
}

// Main compiles the step that build returns, like [aot.Flags.Main]. The trace of the step fails if
// -precision or -remat has no effect on it.
func (f *Flags) Main(ctx context.Context, opts strategy.Options, build aot.Build) int {
	return f.Flags.Main(ctx, opts, func(s *strategy.TPUStrategy) (aot.Step, []any, error) {
		f.newEffectChecker(s)
		return build(s)
	})
}
