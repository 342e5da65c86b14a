package strategy

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/strategy/internal/mode"
)

// MergeContext is the cross-replica context of a merge call in a step: its methods build graph for
// all replicas. Use it inside the merge function only: after the function has returned, its methods
// panic with [ErrContext].
type MergeContext struct {
	rc   *ReplicaContext
	over bool
}

// open panics once the merge call is over.
func (mc *MergeContext) open(op string) {
	if mc.over {
		panic(mc.ended(op))
	}
}

func (mc *MergeContext) ended(op string) *Error {
	return &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "the merge call is over", Hint: "use its context inside its function only"}
}

// given refuses what is no value of the merge call's step.
func (mc *MergeContext) given(op string, x *MergeValue) *graph.Node {
	if x == nil || x.node == nil || x.node.Graph() != mc.rc.graph {
		panic(fault.New(errkind.TypeError, op, "give values of this merge call", "a merged value of nothing, or of another step"))
	}
	return x.node
}

// MergeValue is a tensor of a step as the replicas together see it: a different tensor on each
// replica, or the same one.
type MergeValue struct {
	mc   *MergeContext
	node *graph.Node
	// mirrored values are the same on every replica.
	mirrored bool
}

// Shape returns the dtype and the dimensions of one replica's tensor.
func (m *MergeValue) Shape() shapes.Shape { return m.node.Shape() }

// Mirrored reports whether the value is known to be the same on every replica.
func (m *MergeValue) Mirrored() bool { return m.mirrored }

// String describes the value.
func (m *MergeValue) String() string {
	if m.mirrored {
		return fmt.Sprintf("Mirrored(%s)", m.node.Shape())
	}
	return fmt.Sprintf("PerReplica(%s)", m.node.Shape())
}

// MergeCall joins the replicas in the step: TensorFlow's merge_call. It calls fn once, in
// cross-replica context, with the arguments as values of all replicas, and returns the results of
// fn to the replicas: the same node to each replica for a value that is the same for all, otherwise
// to each its own. All replicas run the same step, so they always meet; the step is traced once,
// and so is fn. Collectives are emitted where fn combines values.
func (rc *ReplicaContext) MergeCall(fn func(mc *MergeContext, args ...*MergeValue) []*MergeValue, args ...*graph.Node) []*graph.Node {
	rc.inReplica("MergeCall")
	if !rc.inMain() {
		panic(&Error{Match: ErrContext, Op: "strategy: MergeCall", Reason: "called inside a loop body or a branch of the step", Hint: "call it outside"})
	}
	mc := &MergeContext{rc: rc}
	merged := make([]*MergeValue, len(args))
	for i, x := range args {
		if x == nil || x.Graph() != rc.graph {
			panic(fault.New(errkind.TypeError, "MergeCall", "give nodes of the step", "argument %d is no node of it", i))
		}
		merged[i] = &MergeValue{mc: mc, node: x}
	}
	rc.merging = true
	defer func() { rc.merging, mc.over = false, true }()
	results := fn(mc, merged...)
	nodes := make([]*graph.Node, len(results))
	for i, m := range results {
		if m == nil || m.node == nil || m.node.Graph() != rc.graph {
			panic(fault.New(errkind.TypeError, "MergeCall", "return values of the merge context", "result %d is none of it", i))
		}
		nodes[i] = m.node
	}
	return nodes
}

// Context returns the merge call's context, which is cross-replica. With this context
// [eager.Extended.ReduceTo], [eager.Extended.BatchReduceTo], [eager.Extended.Update],
// [eager.Extended.UpdateEach], [eager.Extended.UpdateNonSlot], [eager.Extended.BroadcastTo],
// [eager.Extended.Reduce], [eager.Extended.Gather] and the variables' Assign, AssignAdd, AssignSub
// and Scatter build the step's graph: their arguments and results are *[MergeValue] values, and act
// in each run. All other calls refuse the context with [ErrContext], because they would act once,
// while the step is traced.
func (mc *MergeContext) Context() context.Context {
	return withTracing(mode.With(mc.rc.ctx, mode.Cross(mc.rc.strategy)), mc)
}

// Strategy returns the strategy that runs the step.
func (mc *MergeContext) Strategy() *TPUStrategy { return mc.rc.strategy }

// Reduce combines a value over the replicas by one all-reduce. With axes each replica's tensor is
// reduced along these axes first; all replicas' tensors have one size.
func (mc *MergeContext) Reduce(op ReduceOp, x *MergeValue, axes ...int) *MergeValue {
	mc.open("Reduce")
	if err := op.check("reduce"); err != nil {
		panic(err)
	}
	node := mc.given("reduce", x)
	if op == Mean && node.DType().IsInt() && len(axes) > 0 {
		panic(fault.New(errkind.TypeError, "reduce", "convert it to a float first", "MEAN of dtype %s in a step", node.DType()))
	}
	if len(axes) > 0 {
		if op == Mean {
			node = graph.ReduceMean(node, axes...)
		} else {
			node = graph.ReduceSum(node, axes...)
		}
	}
	if x.mirrored && op == Mean {
		return &MergeValue{mc: mc, node: node, mirrored: true}
	}
	if err := reducible(mc.rc.strategy, node.DType()); err != nil {
		panic(err)
	}
	return &MergeValue{mc: mc, node: allReduce(op, node, mc.rc.strategy.replicas), mirrored: true}
}

// Gather concatenates the replicas' tensors along axis, in replica order, by one all-gather.
func (mc *MergeContext) Gather(x *MergeValue, axis int) *MergeValue {
	mc.open("Gather")
	return &MergeValue{mc: mc, node: spmd.AllGather(mc.given("gather", x), axis), mirrored: true}
}

// LocalResults returns the replicas' tensors in replica order, each of them known to all replicas:
// by one all-gather, or without communication if the tensors are the same.
func (mc *MergeContext) LocalResults(x *MergeValue) []*MergeValue {
	mc.open("LocalResults")
	mc.given("LocalResults", x)
	if x.mirrored {
		return slices.Repeat([]*MergeValue{x}, mc.rc.strategy.replicas)
	}
	results := make([]*MergeValue, mc.rc.strategy.replicas)
	all := spmd.AllGather(graph.ExpandAxes(x.node, 0), 0)
	for r := range results {
		part := graph.SliceAxis(all, 0, graph.AxisRange(r, r+1))
		results[r] = &MergeValue{mc: mc, node: graph.Reshape(part, x.node.Shape().Dimensions...), mirrored: true}
	}
	return results
}

// Map applies a graph function to values. The result counts as the same on every replica if all
// values do; f must not use anything else that differs between replicas.
func (mc *MergeContext) Map(f func(in []*graph.Node) *graph.Node, in ...*MergeValue) *MergeValue {
	mc.open("Map")
	nodes := make([]*graph.Node, len(in))
	mirrored := true
	for i, m := range in {
		nodes[i] = mc.given("Map", m)
		mirrored = mirrored && m.mirrored
	}
	out := f(nodes)
	if out == nil || out.Graph() != mc.rc.graph {
		panic(fault.New(errkind.TypeError, "Map", "return a node of the step", "the function returns none"))
	}
	return &MergeValue{mc: mc, node: out, mirrored: mirrored && mc.mirrored(out)}
}

// mirrored reports whether a node of the step is known to be the same on every replica.
func (mc *MergeContext) mirrored(x *graph.Node) bool {
	varying, err := mc.rc.varying([]*graph.Node{x}, true)
	if err != nil {
		panic(err)
	}
	return !varying[0]
}

// value returns what a call was given as a value of all replicas. host says that it is a host
// value, one for all. A number takes the dtype of v, if that is a scalar.
func (mc *MergeContext) value(op string, x any, v *Variable) (m *MergeValue, host bool) {
	if o, ok := x.(*Objects); ok && o != nil {
		panic(&Error{Match: ErrContext, Op: "strategy: " + op, Reason: fmt.Sprintf("given a %T, which the step's graph does not hold", x), Hint: "pass it to the step as an argument"})
	}
	o := operandOf(x)
	m = &MergeValue{mc: mc}
	m.node, host = mc.rc.node(op, v, o)
	switch of, merged := x.(*MergeValue); {
	case merged:
		return of, false
	case o.variable != nil && o.replica < 0:
		m.mirrored = o.variable.strategy != mc.rc.strategy || !o.variable.perReplica()
	default:
		m.mirrored = host || o.replica >= 0 || mc.mirrored(m.node)
	}
	return m, host
}

// Read returns a variable's value across replicas. The components of an [OnRead] variable are
// combined.
func (mc *MergeContext) Read(v *Variable) *MergeValue {
	mc.open("Read")
	c := mc.rc.capture("Read", v)
	if c.borrowed {
		return &MergeValue{mc: mc, node: c.now, mirrored: true}
	}
	if v.synchronization == OnWrite {
		if v.localWrites {
			return &MergeValue{mc: mc, node: mc.rc.first(c.now), mirrored: true}
		}
		return &MergeValue{mc: mc, node: c.now, mirrored: true}
	}
	return &MergeValue{mc: mc, node: mc.rc.combine(v.aggregation, c.now), mirrored: true}
}

// Assign gives all components of the variable a new value, by the rules of [Variable.Assign].
// Nothing is aggregated, so that a mirrored variable accepts only a value that is the same on
// every replica.
func (mc *MergeContext) Assign(v *Variable, x *MergeValue) { mc.write(assign.Set, v, x) }

// AssignAdd adds to all components.
func (mc *MergeContext) AssignAdd(v *Variable, x *MergeValue) { mc.write(assign.Add, v, x) }

// AssignSub subtracts from all components.
func (mc *MergeContext) AssignSub(v *Variable, x *MergeValue) { mc.write(assign.Sub, v, x) }

func (mc *MergeContext) write(w assign.Op, v *Variable, x *MergeValue) {
	mc.open(w.Name)
	c := mc.rc.capture(w.Name, v)
	op := fmt.Sprintf("%s %q", w.Name, v.path)
	node := mc.given(op, x)
	switch {
	case v.synchronization == OnRead && !x.mirrored:
		panic(fault.New(errkind.TypeError, op, "write it in the replicas", "a PerReplica value for a variable that is combined on read"))
	case v.synchronization == OnRead && v.aggregation == AggregateSum && w.Name != assign.Set.Name:
		panic(fault.New(errkind.ValueError, op, "assign a total, or write in the replicas", "a variable that is summed on read has no one component to change"))
	case v.synchronization == OnRead && v.aggregation == AggregateSum:
		node = share(node, mc.rc.strategy.replicas)
	case !x.mirrored && !v.localWrites && mc.rc.strategy.replicas > 1:
		panic(fault.New(errkind.TypeError, op, "reduce it first, or create the variable with LocalWrites", "a PerReplica value where one for all replicas is expected"))
	}
	mc.rc.set(op, c, node, w.Apply)
}

// assign is a write of a variable's own method in the merge call.
func (mc *MergeContext) assign(w assign.Op, v *Variable, x any) error {
	_, err := fault.Traced(func() any {
		op := fmt.Sprintf("%s %q", w.Name, v.path)
		mc.rc.capture(op, v)
		m, _ := mc.value(op, x, v)
		mc.write(w, v, m)
		return nil
	})
	return err
}

// mergeCall returns the merge call that ctx belongs to, if it belongs to one: the call is to build
// graph.
func (s *TPUStrategy) mergeCall(ctx context.Context, op string) (*MergeContext, error) {
	mc, merging := ctx.Value(tracingKey{}).(*MergeContext)
	rc, _ := ctx.Value(tracingKey{}).(*ReplicaContext)
	if merging {
		rc = mc.rc
	}
	switch {
	case rc == nil:
		return nil, nil
	case rc.strategy != s:
		return nil, fault.OtherStrategy(op, "the step that is being traced")
	case !merging:
		return nil, &Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called in a replica's code", Hint: "call it inside MergeCall, with the context of the MergeContext"}
	case mc.over:
		return nil, mc.ended(op)
	}
	return mc, nil
}
