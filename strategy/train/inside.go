package train

import (
	"context"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/inside"
	"github.com/tpustrategy/tpustrategy/strategy/internal/saved"
)

// What this package uses of package strategy beside its contract.

var (
	_ = innerStrategy(nil)
	_ = innerFunction(nil)
	_ = innerContext(nil)
)

func innerStrategy(s *strategy.TPUStrategy) machine    { return inside.Of[machine](s) }
func innerFunction(f *strategy.Function) function      { return inside.Of[function](f) }
func innerContext(rc *strategy.ReplicaContext) replica { return inside.Of[replica](rc) }

// machine is the inner face of a strategy.
type machine interface {
	// Usable refuses an operation that needs devices, and the code of a step: ahead of time, and once
	// the strategy is closed.
	Usable(ctx context.Context, op string) error
	// TrainingFunction returns a function that has all variables of its store, and whose results are
	// the same on all replicas. The guard may be nil.
	TrainingFunction(step strategy.StepFunc, opts strategy.FunctionOptions, g launchGuard) *strategy.Function
}

// launchGuard decides in a training step whether what the step writes is kept.
type launchGuard = interface {
	// Launched is called after each launch of the function. Its error is the launch's.
	Launched(ctx context.Context, f *strategy.Function) error
	// Saved is what a saved step says of the guard.
	Saved() saved.Guard
}

// function is the inner face of a function. What is set is set before the function runs.
type function interface {
	// RunResident runs the function on a batch, whose buffers stay for the next one, and returns its
	// results, which the next run overwrites. RunSteps runs it on each of the batches, as one loop on
	// the devices, and returns the results of the last.
	RunResident(ctx context.Context, batch []any) ([]strategy.Value, error)
	RunSteps(ctx context.Context, batches [][]any) ([]strategy.Value, error)
	// Store is that of the function's variables, Lookup finds one that is on the devices, and
	// ReadHere copies what a device of this process holds of it.
	Store() *model.Store
	Lookup(path string) (*strategy.Variable, bool)
	ReadHere(ctx context.Context, v *strategy.Variable) (*tensors.Tensor, error)
	// Loaded is what the function was put together from, nil if it was traced.
	Loaded() *saved.Step
	Guard() launchGuard
	SetGuard(g launchGuard)
	Metrics() (saved.Metrics, *strategy.Variable)
	SetMetrics(of saved.Metrics, state *strategy.Variable)
	SetMicrobatches(n int)
}

// replica is the inner face of a replica's context.
type replica interface {
	Microbatches(body func(in []*graph.Node) []*graph.Node) []*graph.Node
	Weighted(mean *graph.Node) *graph.Node
	Rows() *graph.Node
	ReduceIn(dtype dtypes.DType)
	Gradients(loss *graph.Node) (gradients []*graph.Node, names []string)
	MeanGradients(gradients []*graph.Node) []*graph.Node
	InParts() bool
	ClipGradients(gradients []*graph.Node) []*graph.Node
	Update(gradients []*graph.Node, update func(scope *model.Scope, gradients []*graph.Node))
	KeepStates()
	KeepUnless(taken *graph.Node, counters ...*model.Variable)
	Norms(sets ...[]*graph.Node) []*graph.Node
	Trained() []*graph.Node
	Freeze(frozen func(path string) bool)
	Trainable() []string
	KeepFrozen(f func())
	StateOf(v *strategy.Variable) string
	Show(v *strategy.Variable, x *graph.Node) (restore func())
	ShowModel(v *model.Variable, x *graph.Node) (restore func())
	Overwrite(v *strategy.Variable, x *graph.Node)
}
