package eager

import (
	"context"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/engine/stepstate"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// The internal API of package strategy that this package uses.

var (
	_ = inner(nil)
	_ = innerStep(nil)
	_ = inside.Of[value](new(strategy.Mirrored))
)

func inner(s *strategy.TPUStrategy) machine      { return inside.Of[machine](s) }
func innerValue(v strategy.Value) value          { return inside.Of[value](v) }
func innerStep(rc *strategy.ReplicaContext) step { return inside.Of[step](rc) }

// machine is the internal API of a strategy.
type machine interface {
	// RequireCross returns an error in replica code and in another strategy's scope. RequireEager
	// also returns an error inside a traced step. Check returns [strategy.ErrClosed] if the
	// strategy is closed.
	RequireCross(ctx context.Context, op string) error
	RequireEager(ctx context.Context, op, instead string) error
	Check() error
	// MergeCall returns the merge call of a compiled step that ctx belongs to, a mergeCode, or nil.
	MergeCall(ctx context.Context, op string) (code any, err error)
	// Names returns TensorFlow's names of each replica's logical devices and of its host. perHost
	// is the number of devices of a host.
	Names() (devices [][]string, hosts []string, perHost int)

	// Owns returns an error for a nil pointer and for a leaf of another strategy. Indirect reports
	// whether x must be resolved: a variable, a component, or another strategy's value.
	Owns(op string, x any) error
	Indirect(x any) bool
	// Resolve converts an argument to a tensor of this process or a value on the devices.
	// ResolveMirrored converts one value for all replicas, always to the devices. release closes
	// new values.
	Resolve(ctx context.Context, op string, x any) (host *tensors.Tensor, value strategy.Value, release func() error, err error)
	ResolveMirrored(ctx context.Context, op string, x any) (v *strategy.Mirrored, release func() error, err error)
	// PerReplicaOf creates a value from the replicas' tensors, whose shapes (of) may differ. The
	// tensors of replicas without a device in this process are nil. ToHost copies a value to the
	// host.
	PerReplicaOf(ctx context.Context, all []*tensors.Tensor, of []shapes.Shape, a logical.Annotation) (*strategy.PerReplica, error)
	// ObjectsOf returns an Objects with values by replica; only those of this process's replicas
	// are set. ObjectAt returns one of them.
	ObjectsOf(values []any) *strategy.Objects
	ObjectAt(o *strategy.Objects, replica int) (any, error)
	// NextSequence returns consecutive numbers, from 1, for calls in which all processes take part.
	NextSequence() uint64
	ToHost(ctx context.Context, v *strategy.Mirrored) (*tensors.Tensor, error)

	// Call runs a small program over values and variables. It is compiled once for each name and
	// each kind of value and variable.
	Call(ctx context.Context, name string, step strategy.StepFunc, values []strategy.Value, variables []*strategy.Variable, mirrored bool, results ...logical.Annotation) ([]strategy.Value, error)
	// Reduction returns how a value or a variable is reduced without axes, as part of a program's
	// name.
	Reduction(op strategy.ReduceOp, x any) (how byte, err error)
	// ScatterRule returns an error for a scatter that the variable does not support.
	ScatterRule(v *strategy.Variable, op strategy.ScatterOp, inStep bool) error
}

// value is the internal API of a value.
type value interface {
	// Ragged returns the replicas' shapes if they differ. Sizes returns the same for a program.
	Ragged() [][]int
	Sizes(ctx context.Context) (*strategy.PerReplica, error)
	// Mark sets, for a new value, the replicas' shapes if they differ, and whether its tensors are
	// known to be equal.
	Mark(ragged [][]int, equal bool)
	// Keep releases the value on all devices except those in only.
	Keep(only []bool) error
	// Origin identifies the eager call and the result that created the value, equally in all
	// processes. SetOrigin has no effect on a value with an origin.
	Origin() string
	SetOrigin(origin string)
}

// step is the internal API of a step's context.
type step interface {
	// Aggregate aggregates the replicas' values of a write by the variable's rule. Set writes a
	// value that is already aggregated. ScatterRows combines rows that are already aggregated.
	Aggregate(op string, v *strategy.Variable, x *graph.Node) *graph.Node
	Set(op string, v *strategy.Variable, x *graph.Node, apply func(old, x *graph.Node) *graph.Node) *graph.Node
	ScatterRows(op strategy.ScatterOp, v *strategy.Variable, indices, updates *graph.Node) *graph.Node
	// Reduce reduces a value over the replicas as machine.Reduction returned.
	Reduce(op strategy.ReduceOp, how byte, x *graph.Node) *graph.Node
	// First returns replica 0's tensor on every replica. Share divides by the number of replicas.
	First(x *graph.Node) *graph.Node
	Share(x *graph.Node) *graph.Node

	// State returns the state of the trace. InReplica panics while a merge function is traced.
	State() *stepstate.State
	InReplica(op string)
	MeanOfIntegers(x *graph.Node, axes ...int) *graph.Node
	// Node converts an argument of a call to a node of the step. host reports that it is one value
	// for all replicas. A number is converted to the dtype of v if v is a scalar. Varying reports
	// for each node whether its value may differ between replicas.
	Node(op string, v *strategy.Variable, x any) (node *graph.Node, host bool)
	Varying(nodes ...*graph.Node) []bool
	// Built returns the nodes that change when graph is built: the step's last node and the values
	// of its variables.
	Built() []*graph.Node
}
