package eager

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// MergeContext is the cross-replica context of a merge call in a compiled step. Its methods add
// operations to the step. They panic with [strategy.ErrContext] after the merge function has
// returned.
type MergeContext struct {
	rc   *strategy.ReplicaContext
	over bool
}

// MergeValue represents a tensor of a compiled step in a merge call. The tensor may differ between
// replicas.
type MergeValue struct {
	mc       *MergeContext
	node     *graph.Node
	mirrored bool
}

// Node returns the graph node of the tensor, whose value is the replica's own tensor. It returns
// nil for a nil *MergeValue.
func (m *MergeValue) Node() *graph.Node {
	if m == nil {
		return nil
	}
	return m.node
}

// Shape returns the dtype and the dimensions of one replica's tensor.
func (m *MergeValue) Shape() shapes.Shape { return m.node.Shape() }

// Mirrored reports whether the value is known to be equal on every replica.
func (m *MergeValue) Mirrored() bool { return m.mirrored }

func (m *MergeValue) String() string {
	if m.mirrored {
		return fmt.Sprintf("Mirrored(%s)", m.node.Shape())
	}
	return fmt.Sprintf("PerReplica(%s)", m.node.Shape())
}

// MergeCall calls fn in the cross-replica context of a compiled step, like TensorFlow's merge_call.
// fn receives args as values of all replicas. The results of fn are returned to the replicas: a
// mirrored result is the same for each replica; of any other result each replica receives its own
// tensor. fn is called once, while the step is traced. Calls in fn that combine values add
// collectives to the step. MergeCall reports errors by a panic.
func MergeCall(rc *strategy.ReplicaContext, fn func(mc *MergeContext, args ...*MergeValue) []*MergeValue,
	args ...*graph.Node) []*graph.Node {
	mc := &MergeContext{rc: rc}
	engine.Internal(mc.rc).CheckReplicaCode("MergeCall")
	if f := rc.Graph().CurrentFunc(); f != nil && !f.IsMain() { // nil before the first node
		panic(&strategy.Error{Match: strategy.ErrContext, Op: "strategy: MergeCall",
			Reason: "called inside a loop body or a branch of the step", Hint: "call it outside"})
	}
	values := make([]*MergeValue, len(args))
	for i, x := range args {
		if x == nil || x.Graph() != rc.Graph() {
			panic(fault.New(errkind.TypeError, "MergeCall", "give nodes of the step",
				"argument %d is no node of it", i))
		}
		values[i] = mc.newValue(x, false)
	}
	engine.Internal(mc.rc).State().Merging = true
	defer func() {
		engine.Internal(mc.rc).State().Merging = false
		mc.over = true
	}()
	results := fn(mc, values...)
	nodes := make([]*graph.Node, len(results))
	for i, m := range results {
		if nodes[i] = m.Node(); nodes[i] == nil || nodes[i].Graph() != rc.Graph() {
			panic(fault.New(errkind.TypeError, "MergeCall", "return values of the merge context",
				"result %d is none of it", i))
		}
	}
	return nodes
}

func (mc *MergeContext) newValue(node *graph.Node, mirrored bool) *MergeValue {
	return &MergeValue{mc: mc, node: node, mirrored: mirrored}
}

// requireOpen panics if the merge call has returned.
func (mc *MergeContext) requireOpen(op string) {
	if err := mc.checkOpen(op); err != nil {
		panic(err)
	}
}

func (mc *MergeContext) checkOpen(op string) error {
	if !mc.over {
		return nil
	}
	return &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op, Reason: "the merge call is over",
		Hint: "use its context inside its function only"}
}

// requireNode returns the graph node of x. It panics if x does not belong to the step of the merge
// call.
func (mc *MergeContext) requireNode(op string, x *MergeValue) *graph.Node {
	if x.Node() == nil || x.node.Graph() != mc.rc.Graph() {
		panic(fault.New(errkind.TypeError, op, "give values of this merge call",
			"a merged value of nothing, or of another step"))
	}
	return x.node
}

// operand converts an argument of the call op to a MergeValue. A Go number is converted to the
// dtype of v if v is a scalar. The result host is true for a host value, which is the same on all
// replicas.
func (mc *MergeContext) operand(op string, x any, v *strategy.Variable) (m *MergeValue, host bool) {
	if o, ok := x.(*strategy.Objects); ok && o != nil {
		panic(&strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op,
			Reason: fmt.Sprintf("given a %T, which the step's graph does not hold", x),
			Hint:   "pass it to the step as an argument"})
	}
	node, host := engine.Internal(mc.rc).ToNode(op, v, x)
	switch x := x.(type) {
	case *MergeValue:
		return x, false
	case *strategy.Variable:
		return mc.newValue(node, x.Strategy() != mc.rc.Strategy() || !componentsVary(x)), host
	case Component:
		return mc.newValue(node, true), host
	}
	return mc.newValue(node, host || !engine.Internal(mc.rc).IsVarying(node)[0]), host
}

// Context returns the cross-replica context of the merge call. With this context
// [Extended.ReduceTo], [Extended.BatchReduceTo], [Extended.Update], [Extended.UpdateEach],
// [Extended.UpdateNonSlot], [Extended.BroadcastTo], [Extended.Reduce], [Extended.Gather] and the
// variables' Assign, AssignAdd, AssignSub and Scatter add operations to the step. Their arguments
// and results are *[MergeValue] values. Other calls return [strategy.ErrContext], because they
// would run only once, while the step is traced.
func (mc *MergeContext) Context() context.Context {
	return mode.WithTrace(mode.With(mc.rc.Context(), mode.Cross(mc.rc.Strategy())), mergeCode{mc})
}

func (mc *MergeContext) Strategy() *strategy.TPUStrategy { return mc.rc.Strategy() }

// Reduce reduces a value over the replicas with one all-reduce. With axes, each replica's tensor is
// first reduced along these axes.
func (mc *MergeContext) Reduce(op strategy.ReduceOp, x *MergeValue, axes ...int) *MergeValue {
	mc.requireOpen("Reduce")
	if op != strategy.Sum && op != strategy.Mean {
		panic(fault.UnknownReduction("reduce", op))
	}
	node := mc.requireNode("reduce", x)
	if op == strategy.Mean && node.DType().IsInt() && (len(axes) > 0 || !x.mirrored) {
		return mc.newValue(engine.Internal(mc.rc).MeanOfIntegers(node, axes...), true)
	}
	if len(axes) > 0 {
		if op == strategy.Mean {
			node = graph.ReduceMean(node, axes...)
		} else {
			node = graph.ReduceSum(node, axes...)
		}
	}
	if x.mirrored && op == strategy.Mean {
		return mc.newValue(node, true)
	}
	return mc.newValue(mc.inReplica(func() *graph.Node { return mc.rc.AllReduce(op, node) }), true)
}

// inReplica runs f and allows it to call the methods of the step's replica context, which otherwise
// panic during a merge call.
func (mc *MergeContext) inReplica(f func() *graph.Node) *graph.Node {
	state := engine.Internal(mc.rc).State()
	state.Merging = false
	defer func() { state.Merging = true }()
	return f()
}

// Gather concatenates the replicas' tensors along axis, in replica order, with one all-gather.
func (mc *MergeContext) Gather(x *MergeValue, axis int) *MergeValue {
	mc.requireOpen("Gather")
	return mc.newValue(spmd.AllGather(mc.requireNode("gather", x), axis), true)
}

// LocalResults returns the tensors of all replicas in replica order. Each result is mirrored. It
// adds one all-gather, or nothing if x is mirrored.
func (mc *MergeContext) LocalResults(x *MergeValue) []*MergeValue {
	mc.requireOpen("LocalResults")
	mc.requireNode("LocalResults", x)
	if x.mirrored {
		return slices.Repeat([]*MergeValue{x}, mc.rc.NumReplicasInSync())
	}
	results := make([]*MergeValue, mc.rc.NumReplicasInSync())
	all := spmd.AllGather(graph.ExpandAxes(x.node, 0), 0)
	for r := range results {
		part := graph.SliceAxis(all, 0, graph.AxisRange(r, r+1))
		results[r] = mc.newValue(graph.Reshape(part, x.node.Shape().Dimensions...), true)
	}
	return results
}

// Map applies a graph function to the tensors of values. The result is mirrored if all values are
// mirrored. f must not use other values that differ between replicas.
func (mc *MergeContext) Map(f func(in []*graph.Node) *graph.Node, in ...*MergeValue) *MergeValue {
	mc.requireOpen("Map")
	nodes := make([]*graph.Node, len(in))
	mirrored := true
	for i, m := range in {
		nodes[i] = mc.requireNode("Map", m)
		mirrored = mirrored && m.mirrored
	}
	out := f(nodes)
	if out == nil || out.Graph() != mc.rc.Graph() {
		panic(fault.New(errkind.TypeError, "Map", "return a node of the step", "the function returns none"))
	}
	return mc.newValue(out, mirrored && !engine.Internal(mc.rc).IsVarying(out)[0])
}

// Read returns the variable's cross-replica value. It combines the components of a
// [strategy.OnRead] variable.
func (mc *MergeContext) Read(v *strategy.Variable) *MergeValue {
	mc.requireOpen("Read")
	node := mc.inReplica(func() *graph.Node { return mc.rc.ReadReduced(v) })
	if v.Strategy() == mc.rc.Strategy() && v.LocalWrites() && v.Synchronization() == strategy.OnWrite {
		node = engine.Internal(mc.rc).FirstReplica(node)
	}
	return mc.newValue(node, true)
}

// Assign sets all components of the variable, by the rules of [strategy.Variable.Assign]. It does
// not aggregate, so a mirrored variable only accepts a mirrored value.
func (mc *MergeContext) Assign(v *strategy.Variable, x *MergeValue) { mc.write(assign.Set, v, x) }

// AssignAdd adds x to all components, like [MergeContext.Assign].
func (mc *MergeContext) AssignAdd(v *strategy.Variable, x *MergeValue) { mc.write(assign.Add, v, x) }

// AssignSub subtracts x from all components, like [MergeContext.Assign].
func (mc *MergeContext) AssignSub(v *strategy.Variable, x *MergeValue) { mc.write(assign.Sub, v, x) }

func (mc *MergeContext) write(w assign.Op, v *strategy.Variable, x *MergeValue) {
	mc.requireOpen(w.Name)
	mc.rc.Read(v)
	op := fmt.Sprintf("%s %q", w.Name, v.Path())
	node := mc.requireNode(op, x)
	onRead := v.Synchronization() == strategy.OnRead
	switch summed := onRead && v.Aggregation() == strategy.AggregateSum; {
	case onRead && !x.mirrored:
		panic(fault.New(errkind.TypeError, op, "write it in the replicas",
			"a PerReplica value for a variable that is combined on read"))
	case summed && w.Name != assign.Set.Name:
		panic(fault.New(errkind.ValueError, op, "assign a total, or write in the replicas",
			"a variable that is summed on read has no one component to change"))
	case summed:
		node = engine.Internal(mc.rc).DivideByReplicas(node)
	case !x.mirrored && !v.LocalWrites() && mc.rc.NumReplicasInSync() > 1:
		panic(fault.New(errkind.TypeError, op, "reduce it first, or create the variable with LocalWrites",
			"a PerReplica value where one for all replicas is expected"))
	}
	engine.Internal(mc.rc).WriteVariable(op, v, node, w.Apply)
}

// mergeCode implements the methods that write a variable when they are called in a merge call.
type mergeCode struct{ *MergeContext }

func (m mergeCode) Step(op string) (*strategy.ReplicaContext, error) { return m.rc, m.checkOpen(op) }

func (m mergeCode) Write(w assign.Op, v *strategy.Variable, x any) error {
	_, err := fault.CatchPanic(func() any {
		m.rc.Read(v) // before the value, in the order of the step's arguments
		value, _ := m.operand(fmt.Sprintf("%s %q", w.Name, v.Path()), x, v)
		m.write(w, v, value)
		return nil
	})
	return err
}

func (m mergeCode) ScatterRows(op strategy.ScatterOp, v *strategy.Variable, indices, updates any) error {
	_, err := fault.CatchPanic(func() any {
		name := fmt.Sprintf("%s %q", op, v.Path())
		m.rc.Read(v)
		if err := engine.Internal(m.Strategy()).CheckScatter(v, op, false); err != nil {
			panic(err)
		}
		i, _ := m.operand(name, indices, nil)
		u, _ := m.operand(name, updates, nil)
		if !componentsVary(v) && !(i.mirrored && u.mirrored) {
			panic(fault.Unequal(name))
		}
		return engine.Internal(m.rc).ScatterRows(op, v, i.node, u.node)
	})
	return err
}
