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
	"github.com/tpustrategy/tpustrategy/internal/engine/scatter"
	"github.com/tpustrategy/tpustrategy/internal/engine/stepstate"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// ReplicaContext represents the strategy inside a step function, like TensorFlow's
// tf.distribute.ReplicaContext inside a tf.function. Its methods add nodes to the graph of the
// step. Like all graph functions, they report errors by a panic. They panic with [ErrContext] after
// the step function has returned, and for nodes of another graph.
type ReplicaContext struct {
	contextAccess
	ended    bool // set after the step is traced
	strategy *TPUStrategy
	ctx      context.Context
	graph    *graph.Graph
	state    *stepstate.State
	// captured are the variables that the step uses, in the order of the first use.
	captured []*capture
	// onFirstUse is the function of [internalContext.SetVariableHook], or nil.
	onFirstUse func(op string, v *Variable) (path string, first *graph.Node, wrote func(x *graph.Node))
	// values are the arguments that the step is traced for; parameters are their nodes.
	values     []Value
	parameters []*graph.Node
	// padding is the padding of the arguments, or nil.
	padding *paddedDims
}

// Context returns the context of the trace, for calls in the step function. Cross-replica calls
// return an error for this context.
func (rc *ReplicaContext) Context() context.Context { return rc.ctx }

func (rc *ReplicaContext) Strategy() *TPUStrategy { return rc.strategy }

func (rc *ReplicaContext) Graph() *graph.Graph {
	rc.requireTracing("Graph")
	return rc.graph
}

// requireTracing panics with [ErrContext] if the step is not being traced, or if a node does not
// belong to the step's graph.
func (rc *ReplicaContext) requireTracing(op string, nodes ...*graph.Node) {
	if rc.ended {
		panic(&Error{Match: ErrContext, Op: "strategy: " + op,
			Reason: "the replica context is used after its step was traced",
			Hint:   "use the context that the step function receives, and only while that function runs"})
	}
	for _, x := range nodes {
		switch {
		case x == nil:
			panic(fault.New(errkind.TypeError, op, "pass a node of the step", "a nil node"))
		case x.Graph() != rc.graph:
			panic(&Error{Match: ErrContext, Op: "strategy: " + op, Reason: "a node of another graph",
				Hint: "pass nodes of ReplicaContext.Graph"})
		}
	}
}

// NumReplicasInSync returns R, the number of replicas.
func (rc *ReplicaContext) NumReplicasInSync() int { return rc.strategy.replicas }

// ReplicaIDInSyncGroup returns the number of the replica, an int32 scalar from 0 to R-1, which is
// computed when the program runs, like TensorFlow's replica_id_in_sync_group. A loop body or a
// branch can use it only if the step has called it before.
func (rc *ReplicaContext) ReplicaIDInSyncGroup() *graph.Node {
	rc.requireTracing("ReplicaIDInSyncGroup")
	if !rc.inMain() && rc.graph.GetParameterByName(spmd.ReplicaIDName) == nil {
		panic(&Error{Match: ErrContext, Op: "strategy: ReplicaIDInSyncGroup",
			Reason: "called first inside a loop body or a branch of the step", Hint: "call it before"})
	}
	return spmd.ReplicaID(rc.graph)
}

// constant returns a new scalar node. GoMLX's own function shares one node per number. If a branch
// uses this node first, other branches cannot use it. GoMLX also creates integers of less than a
// byte as Uint8; constant converts these to dtype.
func constant(g *graph.Graph, dtype dtypes.DType, x float64) *graph.Node {
	if dtype.IsPacked() {
		return graph.ConvertDType(graph.Const(g, int8(x)), dtype)
	}
	return graph.Const(g, shapes.CastAsDType(x, dtype))
}

// inMain reports whether the graph currently builds the step itself, and not a loop body or a
// branch.
func (rc *ReplicaContext) inMain() bool {
	f := rc.graph.CurrentFunc()
	return f == nil || f.IsMain() // nil before the first node
}

// Scope returns the scope of the store at the given path, or the root scope, in which a layer
// creates its variables. Scope panics if a second layer of the same kind uses a path, because the
// two layers would share their variables. To share variables on purpose, use GoMLX's Shared:
// rc.Scope().Shared("hidden") returns rc.Scope("hidden") a second time. Layers may use different
// sub-scopes of a scope, such as rc.Scope("conv").In("1").
//
// A layer that calls [model.Scope.VariableWithShape] without a sub-scope, such as layers.Embedding,
// is not checked, because models use an embedding table twice. Scope panics with an [*Error] if the
// function has no store.
func (rc *ReplicaContext) Scope(path ...string) *model.Scope {
	rc.requireTracing("Scope")
	if rc.state.Scope == nil {
		panic(noStore("Scope"))
	}
	return rc.state.ScopeAt(rc.graph, path...)
}

func noStore(op string) error {
	return fault.New(errkind.ValueError, op, "set FunctionOptions.Store", "the step function has no store")
}

// AllReduce combines x over the replicas and returns the result on each replica, like TensorFlow's
// all_reduce. The gradient is the same reduction. Mean divides before it sums, as TensorFlow does
// on TPUs. A sum of -0 and -0 may be +0. AllReduce adds one all-reduce, or two for complex numbers.
//
// The mean of integers is a Float64, or a Float32 for integers of at most 16 bits. With
// [TensorFlowTPU] semantics AllReduce panics with an error of kind TypeError.
func (rc *ReplicaContext) AllReduce(op ReduceOp, x *graph.Node) *graph.Node {
	rc.requireReplicaCode("AllReduce", x)
	if op == Mean && x.DType().IsInt() {
		return rc.meanOfIntegers("AllReduce", x)
	}
	if err := checkReducible(rc.strategy, x.DType()); err != nil {
		panic(err)
	}
	return allReduce(op, x, rc.strategy.replicas)
}

func allReduce(op ReduceOp, x *graph.Node, replicas int) *graph.Node {
	switch op {
	case Sum:
		return spmd.AllReduce(x, spmd.Sum)
	case Mean:
		return spmd.AllReduce(divideByReplicas(x, replicas), spmd.Sum)
	}
	panic(fault.UnknownReduction("AllReduce", op))
}

// divideByReplicas divides x by the number of replicas; integers truncate.
func divideByReplicas(x *graph.Node, replicas int) *graph.Node {
	if x.DType().IsInt() {
		return graph.Div(x, graph.Scalar(x.Graph(), x.DType(), replicas))
	}
	return multiplyBy(x, 1/float64(replicas))
}

// multiplyBy multiplies x by a number. It multiplies half-precision values in float32, unless the
// number is a power of two.
func multiplyBy(x *graph.Node, number float64) *graph.Node {
	if dtype, half := x.DType(), 0.5; dtype.IsHalfPrecision() {
		if fraction, _ := math.Frexp(number); fraction != half {
			return graph.ConvertDType(multiplyBy(graph.ConvertDType(x, dtypes.Float32), number), dtype)
		}
	}
	return graph.Mul(x, constant(x.Graph(), x.DType(), number))
}

// checkReducible returns an error for a dtype that cannot be summed over the replicas.
func checkReducible(s *TPUStrategy, dtype dtypes.DType) error {
	if err := number.CheckSummableTraced("AllReduce", dtype); err != nil {
		return err
	}
	if s.opts.Semantics != TensorFlowTPU {
		return nil
	}
	switch dtype {
	case dtypes.BFloat16, dtypes.Float16, dtypes.Float32, dtypes.Float64, dtypes.Int32, dtypes.Uint32:
		return nil
	}
	return fault.New(errkind.TypeError, "AllReduce", "convert it, or leave Options.Semantics at its default",
		"TensorFlow's sum across TPU replicas has no dtype %s", dtype)
}

// AllGather concatenates the replicas' values of x along axis, in replica order, and returns the
// result on each replica, like TensorFlow's all_gather. The gradient is a reduce-scatter.
func (rc *ReplicaContext) AllGather(x *graph.Node, axis int) *graph.Node {
	rc.requireReplicaCode("AllGather", x)
	return spmd.AllGather(x, axis)
}

// Broadcast returns replica 0's value of x on every replica, without changing a bit. It adds one
// all-reduce.
func (rc *ReplicaContext) Broadcast(x *graph.Node) *graph.Node {
	rc.requireReplicaCode("Broadcast", x)
	return rc.firstReplica(x)
}

// separateSizes removes the actual sizes of padded arguments from the end of the argument list, and
// stores these sizes in the state.
func (rc *ReplicaContext) separateSizes(values []Value) {
	rc.state.Sizes = map[int]*graph.Node{}
	var ragged []int
	for i, v := range values {
		if v.base().replicaShapes != nil {
			ragged = append(ragged, i)
		}
	}
	n := len(values) - len(ragged)
	for k, i := range ragged {
		rc.state.Sizes[i] = rc.state.Arguments[n+k]
	}
	rc.state.Arguments = rc.state.Arguments[:n:n]
}

// ValidSize returns the actual size of a dimension of an argument on this replica, an int32 scalar.
// The size of a padded argument's node may be larger; see [FunctionOptions].Padding.
func (rc *ReplicaContext) ValidSize(argument, axis int) *graph.Node {
	rc.requireTracing("RealSize")
	x, sizes := argumentSizes(rc.state, "RealSize", argument)
	if axis < -x.Rank() || axis >= x.Rank() {
		panic(fault.New(errkind.ValueError, "RealSize", "use an axis that the argument has",
			"axis %d of an argument of rank %d", axis, x.Rank()))
	}
	axis = (axis + x.Rank()) % x.Rank()
	if sizes == nil {
		return graph.Const(rc.graph, int32(x.Shape().Dimensions[axis]))
	}
	return graph.Reshape(graph.Slice(sizes, graph.AxisRange(axis, axis+1)))
}

// RealElements returns a bool tensor with the shape of an argument. An element is false if the
// argument's element is padding.
func (rc *ReplicaContext) RealElements(argument int) *graph.Node {
	rc.requireTracing("RealElements")
	x, sizes := argumentSizes(rc.state, "RealElements", argument)
	if sizes == nil || x.IsScalar() {
		return graph.BroadcastToDims(graph.Const(rc.graph, true), x.Shape().Dimensions...)
	}
	return scatter.PaddingMask(x, sizes)
}

// argumentSizes returns argument i of the step and the actual sizes of its dimensions. sizes is nil
// if the argument is not padded.
func argumentSizes(state *stepstate.State, op string, argument int) (x, sizes *graph.Node) {
	if argument < 0 || argument >= len(state.Arguments) {
		panic(fault.New(errkind.ValueError, op, "count the step's arguments from 0", "argument %d of %d", argument,
			len(state.Arguments)))
	}
	return state.Arguments[argument], state.Sizes[argument]
}
