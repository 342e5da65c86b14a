package strategy

import (
	"context"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/saved"
)

// What packages strategy/train and strategy/stepfile use of the strategy, its functions, the
// replicas' contexts and compiled steps beside the contract.

// guard decides in a training step whether what the step writes is kept. Package strategy/train has
// the one that there is.
type guard = interface {
	// Launched is called after each launch of the function. Its error is the launch's.
	Launched(ctx context.Context, f *Function) error
	// Saved is what a saved step says of the guard.
	Saved() saved.Guard
}

// TrainingFunction returns a function that has all variables of its store, and whose results are
// the same on all replicas. The guard may be nil.
func (m innerStrategy) TrainingFunction(step StepFunc, opts FunctionOptions, g guard) *Function {
	opts.mirroredResults = true
	f := m.Function(step, opts)
	f.wholeModel, f.guard = true, g
	return f
}

// Usable refuses an operation that needs devices, and the code of a step: ahead of time, and once
// the strategy is closed.
func (m innerStrategy) Usable(ctx context.Context, op string) error {
	if err := RefuseTracing(ctx, op, fault.InsteadOfMeeting); err != nil {
		return err
	}
	s := m.TPUStrategy
	if err := s.runnable(op); err != nil {
		return err
	}
	return s.check()
}

// innerFunction is the inner face of a function.
type innerFunction struct{ *Function }

func (m innerFunction) RunResident(ctx context.Context, batch []any) ([]Value, error) {
	return m.runResident(ctx, batch)
}
func (m innerFunction) RunSteps(ctx context.Context, batches [][]any) ([]Value, error) {
	return m.runSteps(ctx, batches)
}
func (m innerFunction) Store() *model.Store { return m.opts.Store }

// Lookup returns a variable of the function's store that is on the devices.
func (m innerFunction) Lookup(path string) (*Variable, bool) {
	if m.opts.Store == nil {
		return nil, false
	}
	return m.strategy.Variables(m.opts.Store).Lookup(path)
}

// ReadHere copies what a device of this process holds of a variable to the host: a mirrored
// variable's value, without communication. It waits for the steps under way.
func (m innerFunction) ReadHere(ctx context.Context, v *Variable) (*tensors.Tensor, error) {
	s := m.strategy
	for d, here := range s.machine.Local {
		if here {
			return v.LocalPart(ctx, d/s.logicalDevices, d%s.logicalDevices)
		}
	}
	return v.LocalPart(ctx, 0, 0)
}

func (m innerFunction) Loaded() *saved.Step { return m.loaded }
func (m innerFunction) Guard() guard        { return m.guard }
func (m innerFunction) SetGuard(g guard)    { m.guard = g }
func (m innerFunction) SetMetrics(of saved.Metrics, state *Variable) {
	m.metrics, m.metricState = of, state
}
func (m innerFunction) Metrics() (saved.Metrics, *Variable) { return m.metrics, m.metricState }
func (m innerFunction) SetMicrobatches(n int)               { m.microbatches = n }
func (m innerContext) Microbatches(body func(in []*graph.Node) []*graph.Node) []*graph.Node {
	return m.microbatches(body)
}
func (m innerContext) Weighted(mean *graph.Node) *graph.Node { return m.weighted(mean) }
func (m innerContext) ReduceIn(dtype dtypes.DType)           { m.reduceIn = dtype }
func (m innerContext) Gradients(loss *graph.Node) (gradients []*graph.Node, names []string) {
	return m.gradients(loss)
}
func (m innerContext) MeanGradients(gradients []*graph.Node) []*graph.Node {
	return m.meanGradients(gradients)
}
func (m innerContext) InParts() bool { return m.inParts() }
func (m innerContext) ClipGradients(gradients []*graph.Node) []*graph.Node {
	return m.clipGradients(gradients)
}
func (m innerContext) Update(gradients []*graph.Node, update func(scope *model.Scope, gradients []*graph.Node)) {
	m.updateParts(gradients, update)
}
func (m innerContext) KeepStates() { m.keepStates() }
func (m innerContext) KeepUnless(taken *graph.Node, counters ...*model.Variable) {
	m.taken, m.counters = taken, counters
}
