package eager

import (
	"context"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
	"github.com/tpustrategy/tpustrategy/strategy/internal/inside"
)

// What this package uses of package strategy beside its contract.

var (
	_ = inside.Of[machine]((*strategy.TPUStrategy)(nil))
	_ = inside.Of[step]((*strategy.ReplicaContext)(nil))
)

// inner returns the machine below a strategy.
func inner(s *strategy.TPUStrategy) machine { return inside.Of[machine](s) }

// machine is the inner face of a strategy.
type machine interface {
	// RequireCross refuses a replica's code and other strategies' scopes, RequireEager also a step
	// that is being traced. Check returns [strategy.ErrClosed] if the strategy is closed.
	RequireCross(ctx context.Context, op string) error
	RequireEager(ctx context.Context, op, instead string) error
	Check() error
	// Within returns ctx as that of code: of a replica's, of the update of a component, or, with -1,
	// for all replicas. Code is the code that ctx belongs to.
	Within(ctx context.Context, replica bool, update int, code any) context.Context
	Code(ctx context.Context) any
	// CrossTracing returns the [trace] of the merge call that ctx belongs to, or nil, and
	// WithinTracedUpdate that of the function of an update there, with its context.
	CrossTracing(ctx context.Context, op string) (trace any, err error)
	WithinTracedUpdate(ctx context.Context, code any) (trace any, _ context.Context)
	// Column is the logical device that ctx names, or 0. Beside returns ctx with the logical device
	// that new variables go to, or with the variable whose place they take, if there is one.
	Column(ctx context.Context) int
	Beside(ctx context.Context, k int, v *strategy.Variable) context.Context
	// DeviceName and HostName are TensorFlow's names of a logical device and of a replica's host,
	// which has DevicesPerHost devices.
	DeviceName(replica, logicalDevice int) string
	HostName(replica int) string
	DevicesPerHost() int

	// Owns refuses a leaf of a nest that is nobody's or another strategy's. Lifts reports whether
	// calls take x for a value that is neither the strategy's nor this process's.
	Owns(op string, x any) error
	Lifts(x any) bool
	// Take brings what a caller gave to the strategy: a tensor of this process, or a value on the
	// devices. TakeMirrored is Take of one value for all replicas, always on the devices.
	Take(ctx context.Context, op string, x any) (host *tensors.Tensor, value strategy.Value, release func() error, err error)
	TakeMirrored(ctx context.Context, op string, x any, a logical.Annotation) (v *strategy.Mirrored, made bool, err error)
	// Host makes a tensor of a host value, PerReplicaOf a value of the replicas' tensors, whose shapes
	// may differ.
	Host(x any) (*tensors.Tensor, error)
	PerReplicaOf(ctx context.Context, all []*tensors.Tensor, a logical.Annotation) (*strategy.PerReplica, error)
	// Component is a replica's part of a value, Parts are the replicas' parts of a merged one.
	Component(v strategy.Value, replica int) *strategy.Component
	Parts(x *strategy.Merged) ([]any, error)
	// Ragged are the shapes of a value's replicas if they differ, Sizes the same for a program.
	Ragged(v strategy.Value) [][]int
	Sizes(ctx context.Context, v strategy.Value) (*strategy.PerReplica, error)
	// Mark notes of a new value the replicas' shapes, if they differ, and whether its tensors are
	// known to be the same.
	Mark(v strategy.Value, ragged [][]int, equal bool)
	// ToHost copies a value to the host, Keep gives it up but on some devices, Snapshot copies a
	// variable's components on the devices.
	ToHost(ctx context.Context, v *strategy.Mirrored) (*tensors.Tensor, error)
	Keep(v *strategy.Mirrored, only []bool) error
	Snapshot(ctx context.Context, v *strategy.Variable) (strategy.Value, error)

	// ScatterRule and ScatterShapes refuse a scatter that the variable does not have, and rows that
	// do not fit it.
	ScatterRule(v *strategy.Variable, op strategy.ScatterOp, inStep bool) error
	ScatterShapes(v *strategy.Variable, name string, indices, updates shapes.Shape) error
	// Call runs a small program over values and variables, which is compiled once for each name and
	// each kind of value and variable.
	Call(ctx context.Context, name string, step strategy.StepFunc, values []strategy.Value, variables []*strategy.Variable, mirrored bool, results ...logical.Annotation) ([]strategy.Value, error)
	// CheckReduce refuses an unknown reduction. ReduceNests reduces nests in one program, to layouts;
	// ReduceAlong reduces a leaf along axes.
	CheckReduce(op strategy.ReduceOp, call string) error
	ReduceNests(ctx context.Context, op strategy.ReduceOp, call string, nests []any, layouts []func(dims []int, otherwise logical.Annotation) logical.Annotation) ([]any, error)
	ReduceAlong(ctx context.Context, op strategy.ReduceOp, x any, axes []int) (any, error)
	// Guard calls a user's function; a panic of it is a [*strategy.PanicError].
	Guard(function string, f func() ([]any, error)) ([]any, error)
}

// innerStep returns the inner face of the context of a small program.
func innerStep(rc *strategy.ReplicaContext) step { return inside.Of[step](rc) }

// step is the inner face of the context of a small program, which names its variables by their
// position.
type step interface {
	// Aggregate combines the replicas' values of a write of a variable as that says, and Set writes
	// what is aggregated already.
	Aggregate(op string, variable int, x *graph.Node) *graph.Node
	Set(op string, variable int, x *graph.Node, apply func(old, x *graph.Node) *graph.Node) *graph.Node
	// ScatterRows combines rows of a variable, which are aggregated before if aggregate is set.
	// RealRows makes the row numbers of padding name no row.
	ScatterRows(op strategy.ScatterOp, variable int, indices, updates *graph.Node, aggregate bool) *graph.Node
	RealRows(indices, sizes *graph.Node) *graph.Node
	// MeanOfIntegers is over the replicas.
	MeanOfIntegers(x *graph.Node) *graph.Node
}

// trace is what calls in a merge call of a compiled step build the step's graph with. Methods
// without an error panic with theirs, as all that builds graph does.
type trace interface {
	// Value returns what a call was given as a value of all replicas, Of a node of the step, and
	// Node the node of a value.
	Value(op string, x any) *strategy.Merged
	Of(node *graph.Node) *strategy.Merged
	Node(m *strategy.Merged) *graph.Node
	// Annotated returns a value split over the logical devices as a says, First replica 0's tensor
	// for all.
	Annotated(m *strategy.Merged, a logical.Annotation) *strategy.Merged
	First(m *strategy.Merged) *strategy.Merged
	// ReduceNest reduces the leaves of a nest over the replicas, GatherNest gathers them.
	ReduceNest(op strategy.ReduceOp, call string, nest any, axes ...int) (any, error)
	GatherNest(nest any, axis int) (any, error)
	// State returns what building graph changes: the step's last node, and the values of its
	// variables.
	State() []*graph.Node
	// Read returns the variable in the replica, or across replicas.
	Read(v *strategy.Variable, across bool) *graph.Node
	// Parts returns the replicas' parts of a value.
	Parts(m *strategy.Merged) []*strategy.Merged
	// Write and Scatter write a variable.
	Write(w assign.Op, v *strategy.Variable, x any) error
	Scatter(op strategy.ScatterOp, v *strategy.Variable, indices, updates any) error
}

// merging returns the trace of the merge call that ctx belongs to, or nil.
func merging(ctx context.Context, s *strategy.TPUStrategy, op string) (trace, error) {
	t, err := inner(s).CrossTracing(ctx, op)
	if t == nil {
		return nil, err
	}
	return t.(trace), nil
}
