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
type guard interface {
	// Launched is called after each launch of the function. Its error is the launch's.
	Launched(ctx context.Context, f *Function) error
	// Saved is what a saved step says of the guard.
	Saved() saved.Guard
}

// TrainingFunction returns a function that has all variables of its store, and whose results are
// the same on all replicas. The guard may be nil.
func (m *machine) TrainingFunction(step StepFunc, opts FunctionOptions, g guard) *Function {
	opts.mirroredResults = true
	f := m.strategy().Function(step, opts)
	f.wholeModel, f.guard = true, g
	return f
}

// Usable refuses an operation that needs devices, and the code of a step: ahead of time, and once
// the strategy is closed.
func (m *machine) Usable(ctx context.Context, op string) error {
	if err := untraced(ctx, op, fault.InsteadOfMeeting); err != nil {
		return err
	}
	s := m.strategy()
	if err := s.runnable(op); err != nil {
		return err
	}
	return s.check()
}

// functionMachine is a function, for packages that stand on the strategy.
type functionMachine Function

// Machine returns what this module's own packages use of the function beside its contract. It is
// not part of the contract, and changes without notice.
func (f *Function) Machine() *functionMachine { return (*functionMachine)(f) }

func (m *functionMachine) function() *Function { return (*Function)(m) }

// RunResident runs the function on a batch and returns its results, which the next call overwrites.
// The batch's buffers stay for the next batch of the same signature, so that a loop allocates
// nothing.
func (m *functionMachine) RunResident(ctx context.Context, batch []any) ([]Value, error) {
	return m.function().runResident(ctx, batch)
}

// RunSteps runs the function on each of the batches, in order, as one loop on the devices. It
// returns the results of the last step.
func (m *functionMachine) RunSteps(ctx context.Context, batches [][]any) ([]Value, error) {
	return m.function().runSteps(ctx, batches)
}

// Store returns the store of the function's variables.
func (m *functionMachine) Store() *model.Store { return m.opts.Store }

// Lookup returns a variable of the function's store that is on the devices.
func (m *functionMachine) Lookup(path string) (*Variable, bool) {
	if m.opts.Store == nil {
		return nil, false
	}
	return m.strategy.Variables(m.opts.Store).Lookup(path)
}

// ReadHere copies what a device of this process holds of a variable to the host: a mirrored
// variable's value, without communication. It waits for the steps under way.
func (m *functionMachine) ReadHere(ctx context.Context, v *Variable) (*tensors.Tensor, error) {
	s := m.strategy
	for d, here := range s.machine.Local {
		if here {
			return v.LocalPart(ctx, d/s.logicalDevices, d%s.logicalDevices)
		}
	}
	return v.LocalPart(ctx, 0, 0)
}

// Loaded returns what the function was put together from, or nil if it was traced.
func (m *functionMachine) Loaded() *saved.Step { return m.loaded }

// Guard returns the function's guard, or nil.
func (m *functionMachine) Guard() guard { return m.guard }

// SetGuard gives the function a guard. It is called before the function runs.
func (m *functionMachine) SetGuard(g guard) { m.guard = g }

// SetMetrics says which metrics the function accumulates, and where. It is called before the
// function runs.
func (m *functionMachine) SetMetrics(of saved.Metrics, state *Variable) {
	m.metrics, m.metricState = of, state
}

// Metrics returns what SetMetrics was given.
func (m *functionMachine) Metrics() (saved.Metrics, *Variable) { return m.metrics, m.metricState }

// SetMicrobatches says into how many microbatches [replicaMachine.Microbatches] cuts a replica's
// rows. It is called before the function runs.
func (m *functionMachine) SetMicrobatches(n int) { m.microbatches = n }

// Microbatches traces body for the microbatches of the replica's rows, one after another in a loop
// of the program, and returns the sums of what it returns. In body [replicaMachine.Weighted] counts
// a mean as the microbatch's part of the replica's.
func (m *replicaMachine) Microbatches(body func(in []*graph.Node) []*graph.Node) []*graph.Node {
	return m.context().microbatches(body)
}

// Weighted returns a replica's mean over its rows, weighted so that the mean of the replicas is the
// mean over all rows: the mean itself where the replicas have equally many.
func (m *replicaMachine) Weighted(mean *graph.Node) *graph.Node { return m.context().weighted(mean) }

// ReduceIn says in which dtype loops over layers add up gradients over the replicas, before a loss
// is built.
func (m *replicaMachine) ReduceIn(dtype dtypes.DType) { m.context().reduceIn = dtype }

// Gradients returns the gradients of a replica's loss for the trainable variables that it uses,
// with zeros in a replica without rows, and the names of these variables.
func (m *replicaMachine) Gradients(loss *graph.Node) (gradients []*graph.Node, names []string) {
	return m.context().gradients(loss)
}

// MeanGradients averages the gradients over the replicas. Where these share out state, it returns
// the replica's parts of the means: see [StateSharding].
func (m *replicaMachine) MeanGradients(gradients []*graph.Node) []*graph.Node {
	return m.context().meanGradients(gradients)
}

// InParts reports whether MeanGradients returns parts.
func (m *replicaMachine) InParts() bool { return m.context().inParts() }

// ClipGradients replaces those that are not finite everywhere by zeros, if they are in parts.
func (m *replicaMachine) ClipGradients(gradients []*graph.Node) []*graph.Node {
	return m.context().clipGradients(gradients)
}

// Update calls an optimizer's update with the store that it is to change, and with the gradients of
// MeanGradients.
func (m *replicaMachine) Update(gradients []*graph.Node, update func(scope *model.Scope, gradients []*graph.Node)) {
	m.context().updateParts(gradients, update)
}

// KeepStates leaves variables of each replica as they were in replicas without rows. It is called
// when all is written.
func (m *replicaMachine) KeepStates() { m.context().keepStates() }

// KeepUnless makes the step keep the old values of all that it writes where taken is false, except
// for those that count what was done.
func (m *replicaMachine) KeepUnless(taken *graph.Node, counters ...*model.Variable) {
	m.taken, m.counters = taken, counters
}
