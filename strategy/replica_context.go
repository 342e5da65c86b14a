package strategy

import (
	"context"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
	"github.com/tpustrategy/tpustrategy/internal/engine/rows"
	"github.com/tpustrategy/tpustrategy/internal/engine/stepstate"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// ReplicaContext is the strategy in a step function: TensorFlow's tf.distribute.ReplicaContext inside
// a tf.function. It is valid until the step function is traced. Later calls that use the graph or
// the variables of the step panic with [ErrContext], and so do calls with nodes of another graph.
// The methods build graph and, like all graph functions, panic with their error.
type ReplicaContext struct {
	ended    bool // the step was traced
	strategy *TPUStrategy
	ctx      context.Context
	graph    *graph.Graph
	state    *stepstate.State
	// captured are the variables that the step touched, in the order of the first touch.
	captured []*capture
	// meet, of a training step, gives a variable that the step meets its parameter, and what follows
	// its writes.
	meet func(op string, v *Variable) (path string, first *graph.Node, wrote func(x *graph.Node))
	// values are what the step is traced for, parameters what stands for them.
	values     []Value
	parameters []*graph.Node
	// padding is that of the arguments, nil without any.
	padding *paddedDims
}

// Context returns the context that the step is traced with, which is in replica context:
// cross-replica calls refuse it.
func (rc *ReplicaContext) Context() context.Context { return rc.ctx }

// Strategy returns the strategy that runs the step.
func (rc *ReplicaContext) Strategy() *TPUStrategy { return rc.strategy }

// Graph returns the graph of the step.
func (rc *ReplicaContext) Graph() *graph.Graph {
	rc.requireTracing("Graph")
	return rc.graph
}

// requireTracing panics with [ErrContext] unless the step is being traced and the nodes belong to its
// graph.
func (rc *ReplicaContext) requireTracing(op string, nodes ...*graph.Node) {
	if rc.ended {
		panic(&Error{Match: ErrContext, Op: "strategy: " + op, Reason: "the replica context is used after its step was traced",
			Hint: "use the context that the step function receives, and only while that function runs"})
	}
	for _, x := range nodes {
		switch {
		case x == nil:
			panic(fault.New(errkind.TypeError, op, "pass a node of the step", "a nil node"))
		case x.Graph() != rc.graph:
			panic(&Error{Match: ErrContext, Op: "strategy: " + op, Reason: "a node of another graph", Hint: "pass nodes of ReplicaContext.Graph"})
		}
	}
}

// NumReplicasInSync returns the number of replicas: TensorFlow's num_replicas_in_sync.
func (rc *ReplicaContext) NumReplicasInSync() int { return rc.strategy.replicas }

// ReplicaIDInSyncGroup returns the number of the replica that runs the step, an int32 scalar from 0
// to R-1: TensorFlow's replica_id_in_sync_group. It is a value of the running program, not of the
// trace, because the step is traced once for all replicas. A loop body or a branch can use it only
// if the step asked for it before.
func (rc *ReplicaContext) ReplicaIDInSyncGroup() *graph.Node {
	rc.requireTracing("ReplicaIDInSyncGroup")
	if !rc.inMain() && rc.graph.GetParameterByName(spmd.ReplicaIDName) == nil {
		panic(&Error{Match: ErrContext, Op: "strategy: ReplicaIDInSyncGroup", Reason: "called first inside a loop body or a branch of the step", Hint: "call it before"})
	}
	return spmd.ReplicaID(rc.graph)
}

// constant returns a new scalar node. GoMLX's own function creates one node per number for the whole
// graph, in the branch that needs it first, where other branches cannot use it. GoMLX's constants of
// the integers of less than a byte have dtype Uint8, so they are converted.
func constant(g *graph.Graph, dtype dtypes.DType, x float64) *graph.Node {
	if dtype.IsPacked() {
		return graph.ConvertDType(graph.Const(g, int8(x)), dtype)
	}
	return graph.Const(g, shapes.CastAsDType(x, dtype))
}

// inMain is false inside a loop body or a branch.
func (rc *ReplicaContext) inMain() bool {
	f := rc.graph.CurrentFunc()
	return f == nil || f.IsMain() // nil before the first node
}

// Scope returns the scope of the store at the given path, or its root scope: layers make their
// variables there. Give each layer a path of its own. A second layer of one kind at one path is an
// error, because the two layers would share their variables; this includes layers in loops. To share
// them on purpose, use GoMLX's Shared: rc.Scope().Shared("hidden") returns the scope of
// rc.Scope("hidden") a second time. Several layers may use scopes inside of one scope, such as
// rc.Scope("conv").In("1").
//
// The rule covers layers that make their variables in a sub-scope by [model.Scope.In], as most layers of
// GoMLX do. A layer that calls [model.Scope.VariableWithShape] in the scope itself, such as
// layers.Embedding, is not checked: a second request of a variable is also how a model reads the table
// of an embedding again. Scope panics with an [*Error] if the function has no store.
func (rc *ReplicaContext) Scope(path ...string) *model.Scope {
	rc.requireTracing("Scope")
	if rc.state.Scope == nil {
		panic(noStore("Scope"))
	}
	return rc.state.ScopeAt(rc.graph, path...)
}

// noStore returns the error of a call that needs the store of the step function.
func noStore(op string) error {
	return fault.New(errkind.ValueError, op, "set FunctionOptions.Store", "the step function has no store")
}

// AllReduce combines x over the replicas; each replica receives the result: TensorFlow's
// all_reduce. The gradient is the same reduction of the replicas' gradients. Mean divides before it
// sums, as TensorFlow does on TPUs. A reduction of -0 and -0 may return +0. It emits one all-reduce
// for most dtypes, and two for complex numbers.
//
// The mean of integers is a Float64, or a Float32 for integers of at most 16 bits, inside
// and outside of steps; with [TensorFlowTPU] semantics it is an error of kind TypeError.
func (rc *ReplicaContext) AllReduce(op ReduceOp, x *graph.Node) *graph.Node {
	rc.inReplica("AllReduce", x)
	if op == Mean && x.DType().IsInt() {
		return rc.meanOfIntegers("AllReduce", x)
	}
	if err := reducible(rc.strategy, x.DType()); err != nil {
		panic(err)
	}
	return allReduce(op, x, rc.strategy.replicas)
}

func allReduce(op ReduceOp, x *graph.Node, replicas int) *graph.Node {
	switch op {
	case Sum:
		return spmd.AllReduce(x, spmd.Sum)
	case Mean:
		return spmd.AllReduce(share(x, replicas), spmd.Sum)
	}
	panic(fault.UnknownReduction("AllReduce", op))
}

// share is x over the number of replicas; integers truncate. The reciprocal of a number that is no
// power of two is coarse in half precision.
func share(x *graph.Node, replicas int) *graph.Node {
	if x.DType().IsInt() {
		return graph.Div(x, graph.Scalar(x.Graph(), x.DType(), replicas))
	}
	return times(x, 1/float64(replicas))
}

// times is a float multiplied by a number.
func times(x *graph.Node, number float64) *graph.Node {
	if dtype, half := x.DType(), 0.5; dtype.IsHalfPrecision() {
		if fraction, _ := math.Frexp(number); fraction != half {
			return graph.ConvertDType(times(graph.ConvertDType(x, dtypes.Float32), number), dtype)
		}
	}
	return graph.Mul(x, constant(x.Graph(), x.DType(), number))
}

// reducible refuses the dtypes that cannot be summed, or not by TensorFlow's op for TPUs.
func reducible(s *TPUStrategy, dtype dtypes.DType) error {
	if err := number.CheckTraced("AllReduce", dtype); err != nil {
		return err
	}
	if s.opts.Semantics != TensorFlowTPU {
		return nil
	}
	switch dtype {
	case dtypes.BFloat16, dtypes.Float16, dtypes.Float32, dtypes.Float64, dtypes.Int32, dtypes.Uint32:
		return nil
	}
	return fault.New(errkind.TypeError, "AllReduce", "convert it, or leave Options.Semantics at its default", "TensorFlow's sum across TPU replicas has no dtype %s", dtype)
}

// AllGather concatenates the replicas' x along axis, in replica order; each replica receives the
// result: TensorFlow's all_gather. The gradient is summed and scattered back.
func (rc *ReplicaContext) AllGather(x *graph.Node, axis int) *graph.Node {
	rc.inReplica("AllGather", x)
	return spmd.AllGather(x, axis)
}

// Broadcast returns the x of replica 0 on every replica, bit for bit, by one all-reduce.
func (rc *ReplicaContext) Broadcast(x *graph.Node) *graph.Node {
	rc.inReplica("Broadcast", x)
	return rc.first(x)
}

// takeSizes takes the sizes off the program's arguments.
func (rc *ReplicaContext) takeSizes(values []Value) {
	rc.state.Sizes = map[int]*graph.Node{}
	var ragged []int
	for i, v := range values {
		if v.base().ragged != nil {
			ragged = append(ragged, i)
		}
	}
	n := len(values) - len(ragged)
	for k, i := range ragged {
		rc.state.Sizes[i] = rc.state.Arguments[n+k]
	}
	rc.state.Arguments = rc.state.Arguments[:n:n]
}

// RealSize returns the size of a dimension of the step's argument in the replica that runs, an
// int32 scalar. For an argument that was padded it is less than the argument's own size; see
// [FunctionOptions.Padding].
func (rc *ReplicaContext) RealSize(argument, axis int) *graph.Node {
	rc.requireTracing("RealSize")
	x, sizes := sizesOf(rc.state, "RealSize", argument)
	if axis < -x.Rank() || axis >= x.Rank() {
		panic(fault.New(errkind.ValueError, "RealSize", "use an axis that the argument has", "axis %d of an argument of rank %d", axis, x.Rank()))
	}
	axis = (axis + x.Rank()) % x.Rank()
	if sizes == nil {
		return graph.Const(rc.graph, int32(x.Shape().Dimensions[axis]))
	}
	return graph.Reshape(graph.Slice(sizes, graph.AxisRange(axis, axis+1)))
}

// RealElements returns a bool tensor of the argument's dimensions: true for the argument's elements
// that are no padding.
func (rc *ReplicaContext) RealElements(argument int) *graph.Node {
	rc.requireTracing("RealElements")
	x, sizes := sizesOf(rc.state, "RealElements", argument)
	if sizes == nil || x.IsScalar() {
		return graph.BroadcastToDims(graph.Const(rc.graph, true), x.Shape().Dimensions...)
	}
	return rows.Real(x, sizes)
}

// sizesOf returns an argument of the step and its real sizes, nil for one that is not padded.
func sizesOf(of *stepstate.State, op string, argument int) (x, sizes *graph.Node) {
	if argument < 0 || argument >= len(of.Arguments) {
		panic(fault.New(errkind.ValueError, op, "count the step's arguments from 0", "argument %d of %d", argument, len(of.Arguments)))
	}
	return of.Arguments[argument], of.Sizes[argument]
}
