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

// The internal API of package strategy that this package uses.

var (
	_ = innerStrategy(nil)
	_ = innerFunction(nil)
	_ = innerContext(nil)
)

func innerStrategy(s *strategy.TPUStrategy) machine    { return inside.Of[machine](s) }
func innerFunction(f *strategy.Function) function      { return inside.Of[function](f) }
func innerContext(rc *strategy.ReplicaContext) replica { return inside.Of[replica](rc) }

// machine is the internal API of a strategy.
type machine interface {
	// Usable returns an error inside a traced step function, for a strategy without devices, and
	// for a closed strategy.
	Usable(ctx context.Context, op string) error
	// TrainingFunction returns a function that has all variables of its store and whose results are
	// equal on all replicas. g may be nil. microbatches is the number of microbatches for reports;
	// 0 means 1. microbatch returns the padded number of rows of each microbatch of the arguments,
	// or 0 if no rows are padded.
	TrainingFunction(step strategy.StepFunc, opts strategy.FunctionOptions, g launchGuard, microbatches int, microbatch func(arguments []strategy.Value) int) *strategy.Function
	// Accumulator creates the variable in which a function accumulates n metrics: on each replica a
	// sum and a weight for each metric, initially zero. It does not access a device.
	Accumulator(name string, n int) (*strategy.Variable, error)
	// Sharding reports whether any state is sharded over the replicas.
	Sharding() bool
	// Batched reports whether each replica has its own tensor of a value. Ragged returns the
	// replicas' shapes if they differ.
	Batched(v strategy.Value) bool
	Ragged(v strategy.Value) [][]int
}

// launchGuard decides in a training step whether the step's writes are kept.
type launchGuard = interface {
	// Launched is called after each launch of the function. The launch returns its error.
	Launched(ctx context.Context, f *strategy.Function) error
	// Saved returns the guard's description for a step file.
	Saved() saved.Guard
}

// function is the internal API of a function. Its setters must be called before the function runs.
type function interface {
	// RunResident runs the function on a batch and returns its results. The batch's buffers are
	// kept for the next run, which overwrites the results. RunSteps runs the function on each of
	// the batches in one loop on the devices, and returns the results of the last run.
	RunResident(ctx context.Context, batch []any) ([]strategy.Value, error)
	RunSteps(ctx context.Context, batches [][]any) ([]strategy.Value, error)
	// Arguments returns how the arguments are sharded over the logical devices.
	Arguments() []logical.Annotation
	// Store returns the store of the function's variables. Lookup returns a variable that is on the
	// devices. ReadHere returns a variable's tensor on one device of this process.
	Store() *model.Store
	Lookup(path string) (*strategy.Variable, bool)
	ReadHere(ctx context.Context, v *strategy.Variable) (*tensors.Tensor, error)
	// Loaded returns the saved step from which the function was loaded, or nil if it was traced.
	Loaded() *saved.Step
	Guard() launchGuard
	SetGuard(g launchGuard)
	// Metrics returns the function's metrics and their state variable. If the function owns the
	// state, it closes the state when it is closed.
	Metrics() (saved.Metrics, *strategy.Variable)
	SetMetrics(of saved.Metrics, state *strategy.Variable, owns bool)
	// Check returns an error if the function or its strategy is closed.
	Check() error
}

// replica is the internal API of a replica's context.
type replica interface {
	// Meet sets the callback for variables of the scope that the step uses. f returns the
	// variable's path in the store, its parameter, and a function that receives the values written
	// to the variable. Without a parameter the variable is handled by package strategy.
	Meet(f func(op string, v *strategy.Variable) (path string, first *graph.Node, wrote func(x *graph.Node)))
	// Held returns the state of a scope's variable in the trace.
	Held(v *strategy.Variable) region.StepVariable
	// Rows returns the number of the replica's real rows as an int32 scalar, and that of all
	// replicas. Both are nil if no argument has padded rows. Weighted scales a replica's mean over
	// its rows so that the mean over the replicas is the mean over all rows.
	Rows() (mine, all *graph.Node)
	Weighted(mean *graph.Node) *graph.Node
	// Values returns the arguments for which the step is traced. State returns the state of the
	// trace.
	Values() []strategy.Value
	State() *stepstate.State
	// Share returns a gradient divided by the number of replicas. It panics if replicas cannot sum
	// its dtype.
	Share(x *graph.Node) *graph.Node
	// Stored returns how a variable of the store is sharded over the replicas. Belonging returns
	// how the gradient and the optimizer's state of a trained variable are sharded over the
	// replicas, how they are sharded over the logical devices, and which state the replicas shard.
	Stored(v *model.Variable) spmd.ReplicaShard
	Belonging(v *model.Variable) (over spmd.ReplicaShard, split logical.Annotation, state logical.StateSharding)
	// Slicing returns the slices of a stack for the layers of a loop; see [loop.Slicer]. part is
	// the replica's shard, or nil for a replicated stack. Unwritten returns a variable's parameter,
	// or nil once the variable was written.
	Slicing(v *model.Variable) (part *graph.Node, stacks []*graph.Node, layer func(slices []*graph.Node) *graph.Node)
	Unwritten(v *model.Variable) *graph.Node
	// PartOf returns the replica's shard of a variable's value.
	PartOf(v *model.Variable, whole *graph.Node, over spmd.ReplicaShard) *graph.Node
	// Varying reports for each node whether its value may differ between replicas.
	Varying(nodes ...*graph.Node) []bool
	// KeepStates restores the per-replica variables of replicas without rows. It must be called
	// after all writes.
	KeepStates()
}
