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

// What this package uses of package strategy beside its contract.

var (
	_ = inner(nil)
	_ = innerStep(nil)
	_ = inside.Of[value](new(strategy.Mirrored))
)

func inner(s *strategy.TPUStrategy) machine      { return inside.Of[machine](s) }
func innerValue(v strategy.Value) value          { return inside.Of[value](v) }
func innerStep(rc *strategy.ReplicaContext) step { return inside.Of[step](rc) }

// machine is the inner face of a strategy.
type machine interface {
	// RequireCross refuses a replica's code and other strategies' scopes, RequireEager also a step
	// that is being traced. Check returns [strategy.ErrClosed] if the strategy is closed.
	RequireCross(ctx context.Context, op string) error
	RequireEager(ctx context.Context, op, instead string) error
	Check() error
	// MergeCall returns the merge call of a compiled step that ctx belongs to, a mergeCode, or nil.
	MergeCall(ctx context.Context, op string) (code any, err error)
	// Names are TensorFlow's names of each replica's logical devices and of its host, which has
	// perHost devices.
	Names() (devices [][]string, hosts []string, perHost int)

	// Owns refuses a leaf of a nest that is another strategy's, or a nil pointer. Indirect reports
	// whether a call has to resolve x: a variable, a component, or another strategy's value.
	Owns(op string, x any) error
	Indirect(x any) bool
	// Resolve brings what a caller gave to the strategy: a tensor of this process, or a value on the
	// devices. ResolveMirrored is Resolve of one value for all replicas, always on the devices. release
	// closes what was made.
	Resolve(ctx context.Context, op string, x any) (host *tensors.Tensor, value strategy.Value, release func() error, err error)
	ResolveMirrored(ctx context.Context, op string, x any) (v *strategy.Mirrored, release func() error, err error)
	// PerReplicaOf creates a value from the replicas' tensors, whose shapes, of, may differ. The
	// tensors of replicas without a device in this process are nil. ToHost copies a value to the host.
	PerReplicaOf(ctx context.Context, all []*tensors.Tensor, of []shapes.Shape, a logical.Annotation) (*strategy.PerReplica, error)
	// ObjectsOf returns values, by replica, of which only those of this process's replicas are set.
	// ObjectAt returns one of them.
	ObjectsOf(values []any) *strategy.Objects
	ObjectAt(o *strategy.Objects, replica int) (any, error)
	// NextSequence numbers the calls in which all processes take part, from 1.
	NextSequence() uint64
	ToHost(ctx context.Context, v *strategy.Mirrored) (*tensors.Tensor, error)

	// Call runs a small program over values and variables, which is compiled once for each name and
	// each kind of value and variable.
	Call(ctx context.Context, name string, step strategy.StepFunc, values []strategy.Value, variables []*strategy.Variable, mirrored bool, results ...logical.Annotation) ([]strategy.Value, error)
	// Reduction says how a value or a variable is reduced without axes, for the name of a program.
	Reduction(op strategy.ReduceOp, x any) (how byte, err error)
	// ScatterRule refuses a scatter that the variable does not have.
	ScatterRule(v *strategy.Variable, op strategy.ScatterOp, inStep bool) error
}

// value is the inner face of a value.
type value interface {
	// Ragged are the shapes of the replicas if they differ, Sizes the same for a program.
	Ragged() [][]int
	Sizes(ctx context.Context) (*strategy.PerReplica, error)
	// Mark notes of a new value the replicas' shapes, if they differ, and whether its tensors are
	// known to be the same.
	Mark(ragged [][]int, equal bool)
	// Keep gives the value up but on some devices.
	Keep(only []bool) error
	// Origin names the eager call and the result that the value is, the same in all processes.
	// A value keeps the first origin that it is given.
	Origin() string
	SetOrigin(origin string)
}

// step is the inner face of the context of a step.
type step interface {
	// Aggregate combines the replicas' values of a write of a variable as that says, and Set writes
	// what is aggregated already. ScatterRows combines rows that are aggregated already.
	Aggregate(op string, v *strategy.Variable, x *graph.Node) *graph.Node
	Set(op string, v *strategy.Variable, x *graph.Node, apply func(old, x *graph.Node) *graph.Node) *graph.Node
	ScatterRows(op strategy.ScatterOp, v *strategy.Variable, indices, updates *graph.Node) *graph.Node
	// Reduce reduces a value over the replicas as machine.Reduction says.
	Reduce(op strategy.ReduceOp, how byte, x *graph.Node) *graph.Node
	// First returns replica 0's tensor on every replica. Share divides by the number of replicas.
	First(x *graph.Node) *graph.Node
	Share(x *graph.Node) *graph.Node

	// State is what is kept of the step while it is traced. InReplica refuses a call of the replica
	// while a merge function is traced.
	State() *stepstate.State
	InReplica(op string)
	MeanOfIntegers(x *graph.Node, axes ...int) *graph.Node
	// Node returns what a call was given as a node of the step. host says that it is one value, not
	// one for each replica. A number takes the dtype of v, if that is a scalar. Varying reports
	// for each node whether its value may differ between replicas.
	Node(op string, v *strategy.Variable, x any) (node *graph.Node, host bool)
	Varying(nodes ...*graph.Node) []bool
	// Built returns what building graph changes: the step's last node, and the values of its
	// variables.
	Built() []*graph.Node
}
