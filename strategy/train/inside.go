package train

import (
	"context"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
	"github.com/tpustrategy/tpustrategy/internal/engine/stepstate"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
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
	// the same on all replicas. The guard may be nil. microbatches is the number of microbatches, for
	// reports; 0 means 1. microbatch returns the padded number of rows of each microbatch of the
	// arguments, or 0 if no rows are padded.
	TrainingFunction(step strategy.StepFunc, opts strategy.FunctionOptions, g launchGuard, microbatches int, microbatch func(arguments []strategy.Value) int) *strategy.Function
	// Accumulator makes the variable of the scope in which a function accumulates n metrics: of each
	// a sum and a weight, zero at first, on each replica its own. It reaches no device.
	Accumulator(name string, n int) (*strategy.Variable, error)
	// Sharding reports whether the replicas share out any state.
	Sharding() bool
	// Batched reports whether each replica has its own tensor of a value, Ragged are their shapes if
	// they differ.
	Batched(v strategy.Value) bool
	Ragged(v strategy.Value) [][]int
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
	// Arguments say how the arguments are split over the logical devices.
	Arguments() []logical.Annotation
	// Store is that of the function's variables, Lookup finds one that is on the devices, and
	// ReadHere copies what a device of this process holds of it.
	Store() *model.Store
	Lookup(path string) (*strategy.Variable, bool)
	ReadHere(ctx context.Context, v *strategy.Variable) (*tensors.Tensor, error)
	// Loaded is what the function was put together from, nil if it was traced.
	Loaded() *saved.Step
	Guard() launchGuard
	SetGuard(g launchGuard)
	// Metrics are what the function accumulates, and where. A state that the function owns is closed
	// with it.
	Metrics() (saved.Metrics, *strategy.Variable)
	SetMetrics(of saved.Metrics, state *strategy.Variable, owns bool)
	// Check refuses a function that was closed, or whose strategy was.
	Check() error
}

// replica is the inner face of a replica's context.
type replica interface {
	// Meet sets what gives a variable of the scope that the step meets its parameter, of a path of the
	// store, and what is told of the values that are written to it; no parameter for none.
	Meet(f func(op string, v *strategy.Variable) (path string, first *graph.Node, wrote func(x *graph.Node)))
	// Held is a variable of the scope as the step holds it.
	Held(v *strategy.Variable) region.StepVariable
	// Rows are the replica's real rows, an int32 scalar, and those of all replicas; nil if no argument
	// has padded rows. Weighted is a replica's mean over its rows, weighted so that
	// the mean of the replicas is that over all rows.
	Rows() (mine, all *graph.Node)
	Weighted(mean *graph.Node) *graph.Node
	// Values are what the step is traced for, one for each argument, and State is what is kept of it
	// while it is traced.
	Values() []strategy.Value
	State() *stepstate.State
	// Share is a gradient over the number of replicas. It panics if replicas cannot sum its dtype.
	Share(x *graph.Node) *graph.Node
	// Stored says how a variable of the store is in parts over the replicas, and Belonging how what
	// belongs to a trained one is, its gradient and the optimizer's state, how it is split over the
	// logical devices, and what of it the replicas share out.
	Stored(v *model.Variable) spmd.ReplicaShard
	Belonging(v *model.Variable) (over spmd.ReplicaShard, split logical.Annotation, state logical.StateSharding)
	// Slicing gives the slices of a stack to the layers of a loop: see [loop.Slicer]. part is the
	// replica's, nil for a stack that is whole. Unwritten is the parameter that a variable is, nil
	// once it was written.
	Slicing(v *model.Variable) (part *graph.Node, stacks []*graph.Node, layer func(slices []*graph.Node) *graph.Node)
	Unwritten(v *model.Variable) *graph.Node
	// PartOf is the replica's part of a variable's value.
	PartOf(v *model.Variable, whole *graph.Node, over spmd.ReplicaShard) *graph.Node
	// Varying reports for each node whether its value may differ between replicas.
	Varying(nodes ...*graph.Node) []bool
	// KeepStates leaves variables of each replica as they were in replicas without rows. It is called
	// when all is written.
	KeepStates()
}
