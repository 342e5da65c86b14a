package eager

import (
	"context"
	"fmt"
	"slices"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/assign"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/mode"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// MergeContext is the cross-replica context of a merge call in a compiled step: its methods build
// graph for all replicas. Use it inside the merge function only: after the function has returned,
// its methods panic with [strategy.ErrContext].
type MergeContext struct {
	rc   *strategy.ReplicaContext
	step step // the inner face of rc
	over bool
}

// MergeValue is a tensor of a compiled step as the replicas together see it: a different tensor on
// each replica, or the same one.
type MergeValue struct {
	mc       *MergeContext
	node     *graph.Node
	mirrored bool
}

// Node returns the value as a node of the step, the replica's own, or nil for no value.
func (m *MergeValue) Node() *graph.Node {
	if m == nil {
		return nil
	}
	return m.node
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

// MergeCall joins the replicas in a compiled step: TensorFlow's merge_call. It calls fn once, in
// cross-replica context, with the arguments as values of all replicas, and returns the results of
// fn to the replicas: the same node to each replica for a value that is the same for all, otherwise
// to each its own. All replicas run the same step, so they always meet; the step is traced once,
// and so is fn. Collectives are emitted where fn combines values. Like all that builds graph it
// panics with its error.
func MergeCall(rc *strategy.ReplicaContext, fn func(mc *MergeContext, args ...*MergeValue) []*MergeValue, args ...*graph.Node) []*graph.Node {
	mc := &MergeContext{rc: rc, step: innerStep(rc)}
	mc.step.InReplica("MergeCall")
	if f := rc.Graph().CurrentFunc(); f != nil && !f.IsMain() { // nil before the first node
		panic(&strategy.Error{Match: strategy.ErrContext, Op: "strategy: MergeCall", Reason: "called inside a loop body or a branch of the step", Hint: "call it outside"})
	}
	values := make([]*MergeValue, len(args))
	for i, x := range args {
		if x == nil || x.Graph() != rc.Graph() {
			panic(fault.New(errkind.TypeError, "MergeCall", "give nodes of the step", "argument %d is no node of it", i))
		}
		values[i] = mc.merged(x, false)
	}
	mc.step.State().Merging = true
	defer func() {
		mc.step.State().Merging = false
		mc.over = true
	}()
	results := fn(mc, values...)
	nodes := make([]*graph.Node, len(results))
	for i, m := range results {
		if nodes[i] = m.Node(); nodes[i] == nil || nodes[i].Graph() != rc.Graph() {
			panic(fault.New(errkind.TypeError, "MergeCall", "return values of the merge context", "result %d is none of it", i))
		}
	}
	return nodes
}

// merged returns a node of the step as a value of all replicas.
func (mc *MergeContext) merged(node *graph.Node, mirrored bool) *MergeValue {
	return &MergeValue{mc: mc, node: node, mirrored: mirrored}
}

// open panics once the merge call is over.
func (mc *MergeContext) open(op string) {
	if err := mc.ended(op); err != nil {
		panic(err)
	}
}

func (mc *MergeContext) ended(op string) error {
	if !mc.over {
		return nil
	}
	return &strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op, Reason: "the merge call is over", Hint: "use its context inside its function only"}
}

// given refuses what is no value of the merge call's step.
func (mc *MergeContext) given(op string, x *MergeValue) *graph.Node {
	if x.Node() == nil || x.node.Graph() != mc.rc.Graph() {
		panic(fault.New(errkind.TypeError, op, "give values of this merge call", "a merged value of nothing, or of another step"))
	}
	return x.node
}

// operand returns what a call was given as a value of all replicas. host says that it is a host
// value, one for all. A number takes the dtype of v, if that is a scalar.
func (mc *MergeContext) operand(op string, x any, v *strategy.Variable) (m *MergeValue, host bool) {
	if o, ok := x.(*strategy.Objects); ok && o != nil {
		panic(&strategy.Error{Match: strategy.ErrContext, Op: "strategy: " + op, Reason: fmt.Sprintf("given a %T, which the step's graph does not hold", x), Hint: "pass it to the step as an argument"})
	}
	node, host := mc.step.Node(op, v, x)
	switch x := x.(type) {
	case *MergeValue:
		return x, false
	case *strategy.Variable:
		return mc.merged(node, x.Strategy() != mc.rc.Strategy() || !componentsVary(x)), host
	case Component:
		return mc.merged(node, true), host
	}
	return mc.merged(node, host || !mc.step.Varying(node)[0]), host
}

// Context returns the merge call's context, which is cross-replica. With this context
// [Extended.ReduceTo], [Extended.BatchReduceTo], [Extended.Update], [Extended.UpdateEach],
// [Extended.UpdateNonSlot], [Extended.BroadcastTo], [Extended.Reduce], [Extended.Gather] and the
// variables' Assign, AssignAdd, AssignSub and Scatter build the step's graph: their arguments and
// results are *[MergeValue] values, and act in each run. All other calls refuse the context with
// [strategy.ErrContext], because they would act once, while the step is traced.
func (mc *MergeContext) Context() context.Context {
	return mode.WithTrace(mode.With(mc.rc.Context(), mode.Cross(mc.rc.Strategy())), mergeCode{mc})
}

// Strategy returns the strategy that runs the step.
func (mc *MergeContext) Strategy() *strategy.TPUStrategy { return mc.rc.Strategy() }

// Reduce combines a value over the replicas by one all-reduce. With axes each replica's tensor is
// reduced along these axes first; all replicas' tensors have one size.
func (mc *MergeContext) Reduce(op strategy.ReduceOp, x *MergeValue, axes ...int) *MergeValue {
	mc.open("Reduce")
	if op != strategy.Sum && op != strategy.Mean {
		panic(fault.UnknownReduction("reduce", op))
	}
	node := mc.given("reduce", x)
	if op == strategy.Mean && node.DType().IsInt() && (len(axes) > 0 || !x.mirrored) {
		return mc.merged(mc.step.MeanOfIntegers(node, axes...), true)
	}
	if len(axes) > 0 {
		if op == strategy.Mean {
			node = graph.ReduceMean(node, axes...)
		} else {
			node = graph.ReduceSum(node, axes...)
		}
	}
	if x.mirrored && op == strategy.Mean {
		return mc.merged(node, true)
	}
	return mc.merged(mc.inReplica(func() *graph.Node { return mc.rc.AllReduce(op, node) }), true)
}

// inReplica calls the step's own context, which refuses calls while replicas are merged.
func (mc *MergeContext) inReplica(f func() *graph.Node) *graph.Node {
	state := mc.step.State()
	state.Merging = false
	defer func() { state.Merging = true }()
	return f()
}

// Gather concatenates the replicas' tensors along axis, in replica order, by one all-gather.
func (mc *MergeContext) Gather(x *MergeValue, axis int) *MergeValue {
	mc.open("Gather")
	return mc.merged(spmd.AllGather(mc.given("gather", x), axis), true)
}

// LocalResults returns the replicas' tensors in replica order, each of them known to all replicas:
// by one all-gather, or without communication if the tensors are the same.
func (mc *MergeContext) LocalResults(x *MergeValue) []*MergeValue {
	mc.open("LocalResults")
	mc.given("LocalResults", x)
	if x.mirrored {
		return slices.Repeat([]*MergeValue{x}, mc.rc.NumReplicasInSync())
	}
	results := make([]*MergeValue, mc.rc.NumReplicasInSync())
	all := spmd.AllGather(graph.ExpandAxes(x.node, 0), 0)
	for r := range results {
		part := graph.SliceAxis(all, 0, graph.AxisRange(r, r+1))
		results[r] = mc.merged(graph.Reshape(part, x.node.Shape().Dimensions...), true)
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
	if out == nil || out.Graph() != mc.rc.Graph() {
		panic(fault.New(errkind.TypeError, "Map", "return a node of the step", "the function returns none"))
	}
	return mc.merged(out, mirrored && !mc.step.Varying(out)[0])
}

// Read returns a variable's value across replicas. The components of a [strategy.OnRead] variable
// are combined.
func (mc *MergeContext) Read(v *strategy.Variable) *MergeValue {
	mc.open("Read")
	node := mc.inReplica(func() *graph.Node { return mc.rc.ReadAcross(v) })
	if v.Strategy() == mc.rc.Strategy() && v.LocalWrites() && v.Synchronization() == strategy.OnWrite {
		node = mc.step.First(node)
	}
	return mc.merged(node, true)
}

// Assign gives all components of the variable a new value, by the rules of
// [strategy.Variable.Assign]. Nothing is aggregated, so that a mirrored variable accepts only a
// value that is the same on every replica.
func (mc *MergeContext) Assign(v *strategy.Variable, x *MergeValue) { mc.write(assign.Set, v, x) }

// AssignAdd adds to all components.
func (mc *MergeContext) AssignAdd(v *strategy.Variable, x *MergeValue) { mc.write(assign.Add, v, x) }

// AssignSub subtracts from all components.
func (mc *MergeContext) AssignSub(v *strategy.Variable, x *MergeValue) { mc.write(assign.Sub, v, x) }

func (mc *MergeContext) write(w assign.Op, v *strategy.Variable, x *MergeValue) {
	mc.open(w.Name)
	mc.rc.Read(v)
	op := fmt.Sprintf("%s %q", w.Name, v.Path())
	node := mc.given(op, x)
	onRead := v.Synchronization() == strategy.OnRead
	switch summed := onRead && v.Aggregation() == strategy.AggregateSum; {
	case onRead && !x.mirrored:
		panic(fault.New(errkind.TypeError, op, "write it in the replicas", "a PerReplica value for a variable that is combined on read"))
	case summed && w.Name != assign.Set.Name:
		panic(fault.New(errkind.ValueError, op, "assign a total, or write in the replicas", "a variable that is summed on read has no one component to change"))
	case summed:
		node = mc.step.Share(node)
	case !x.mirrored && !v.LocalWrites() && mc.rc.NumReplicasInSync() > 1:
		panic(fault.New(errkind.TypeError, op, "reduce it first, or create the variable with LocalWrites", "a PerReplica value where one for all replicas is expected"))
	}
	mc.step.Set(op, v, node, w.Apply)
}

// mergeCode is a merge call as the code of a context: a variable's own writes build graph there.
type mergeCode struct{ *MergeContext }

// Step returns the step's context, and an error if the call is over.
func (m mergeCode) Step(op string) (*strategy.ReplicaContext, error) { return m.rc, m.ended(op) }

// Write is a write by a variable's own method.
func (m mergeCode) Write(w assign.Op, v *strategy.Variable, x any) error {
	_, err := fault.Traced(func() any {
		m.rc.Read(v) // before the value, in the order of the step's arguments
		value, _ := m.operand(fmt.Sprintf("%s %q", w.Name, v.Path()), x, v)
		m.write(w, v, value)
		return nil
	})
	return err
}

// ScatterRows is [strategy.Variable.Scatter].
func (m mergeCode) ScatterRows(op strategy.ScatterOp, v *strategy.Variable, indices, updates any) error {
	_, err := fault.Traced(func() any {
		name := fmt.Sprintf("%s %q", op, v.Path())
		m.rc.Read(v)
		if err := inner(m.Strategy()).ScatterRule(v, op, false); err != nil {
			panic(err)
		}
		i, _ := m.operand(name, indices, nil)
		u, _ := m.operand(name, updates, nil)
		if !componentsVary(v) && !(i.mirrored && u.mirrored) {
			panic(fault.Unequal(name))
		}
		return m.step.ScatterRows(op, v, i.node, u.node)
	})
	return err
}
