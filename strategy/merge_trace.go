package strategy

import (
	"context"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"tpustrategy/lowering/module"
)

// MergeContext is the cross-replica context of a merge call in a step: what it
// builds belongs to all replicas. It is of use inside the merge function only: after
// it, its methods panic with a [*ContextError].
type MergeContext struct {
	rc   *ReplicaContext
	over bool
}

// open panics once the merge call is over.
func (mc *MergeContext) open(op string) {
	if mc.over {
		panic(&ContextError{Op: op, Reason: "the merge call is over", Hint: "use its context inside its function only"})
	}
}

// Merged is a tensor of a step seen from all replicas: a different one on each, or
// the same.
type Merged struct {
	node *graph.Node
	// mirrored values are the same on every replica.
	mirrored bool
}

// Shape is a replica's.
func (m *Merged) String() string {
	if m.mirrored {
		return fmt.Sprintf("Mirrored(%s)", m.node.Shape())
	}
	return fmt.Sprintf("PerReplica(%s)", m.node.Shape())
}

// MergeCall joins the replicas in the step: fn is called once, in cross-replica
// context, with the arguments as values of all replicas. What it returns is given
// back: a value that is the same for all to each replica, otherwise each its own.
// All replicas run the same step, so they meet by construction; the step is traced
// once and so is fn. Collectives are emitted where fn combines values.
func (rc *ReplicaContext) MergeCall(fn func(mc *MergeContext, args ...*Merged) []*Merged, args ...*graph.Node) []*graph.Node {
	rc.inReplica("MergeCall")
	if !rc.inMain() {
		panic(&ContextError{Op: "MergeCall", Reason: "called inside a loop body or a branch of the step", Hint: "call it outside"})
	}
	merged := make([]*Merged, len(args))
	for i, x := range args {
		if x == nil || x.Graph() != rc.graph {
			panic(fault(TypeError, "MergeCall", "give nodes of the step", "argument %d is no node of it", i))
		}
		merged[i] = &Merged{node: x}
	}
	mc := &MergeContext{rc: rc}
	rc.merging = true
	defer func() { rc.merging, mc.over = false, true }()
	results := fn(mc, merged...)
	nodes := make([]*graph.Node, len(results))
	for i, m := range results {
		if m == nil || m.node.Graph() != rc.graph {
			panic(fault(TypeError, "MergeCall", "return values of the merge context", "result %d is none of it", i))
		}
		nodes[i] = m.node
	}
	return nodes
}

// Context returns a context in cross-replica mode.
func (mc *MergeContext) Context() context.Context {
	return withMode(mc.rc.ctx, mode{strategy: mc.rc.strategy, update: -1})
}

// Strategy returns the strategy.
func (mc *MergeContext) Strategy() *TPUStrategy { return mc.rc.strategy }

// Reduce combines a value over the replicas: one all-reduce. With axes each
// replica's tensor is reduced along them first, all of the same size.
func (mc *MergeContext) Reduce(op ReduceOp, x *Merged, axes ...int) *Merged {
	mc.open("Reduce")
	if err := op.check("reduce"); err != nil {
		panic(err)
	}
	node := x.node
	if op == Mean && node.DType().IsInt() && len(axes) > 0 {
		panic(fault(TypeError, "reduce", "convert it to a float first", "MEAN of dtype %s in a step", node.DType()))
	}
	if len(axes) > 0 {
		if op == Mean {
			node = graph.ReduceMean(node, axes...)
		} else {
			node = graph.ReduceSum(node, axes...)
		}
	}
	if x.mirrored && op == Mean {
		return &Merged{node: node, mirrored: true}
	}
	if err := mc.rc.strategy.reducible(node.DType()); err != nil {
		panic(err)
	}
	return &Merged{node: mc.rc.allReduce(op, node), mirrored: true}
}

// LocalResults are the replicas' tensors, in replica order, each known to all: one
// all-gather.
func (mc *MergeContext) LocalResults(x *Merged) []*Merged {
	mc.open("LocalResults")
	results := make([]*Merged, mc.rc.strategy.replicas)
	all := module.AllGather(graph.ExpandAxes(x.node, 0), 0)
	for r := range results {
		part := graph.SliceAxis(all, 0, graph.AxisRange(r, r+1))
		results[r] = &Merged{node: graph.Reshape(part, x.node.Shape().Dimensions...), mirrored: true}
	}
	return results
}

// Map applies a graph function to values: the result is the same on every replica
// if all of them are, and f uses nothing else that differs.
func (mc *MergeContext) Map(f func(in []*graph.Node) *graph.Node, in ...*Merged) *Merged {
	mc.open("Map")
	nodes := make([]*graph.Node, len(in))
	mirrored := true
	for i, m := range in {
		nodes[i] = m.node
		mirrored = mirrored && m.mirrored
	}
	out := f(nodes)
	if out == nil || out.Graph() != mc.rc.graph {
		panic(fault(TypeError, "Map", "return a node of the step", "the function returns none"))
	}
	if mirrored {
		differs, err := mc.rc.differs([]*graph.Node{out})
		if err != nil {
			panic(err)
		}
		mirrored = !differs[0]
	}
	return &Merged{node: out, mirrored: mirrored}
}

// Read returns a variable's value across replicas: combined, for one that is
// combined on read.
func (mc *MergeContext) Read(v *Variable) *Merged {
	mc.open("Read")
	c := mc.rc.capture("Read", v)
	if v.synchronization == OnWrite {
		if v.localWrites {
			return &Merged{node: mc.rc.first(c.now), mirrored: true}
		}
		return &Merged{node: c.now, mirrored: true}
	}
	return &Merged{node: mc.rc.combine(v.aggregation, c.now), mirrored: true}
}

// Assign gives all components of the variable a new value, by the rules of
// [Variable.Assign]: nothing is aggregated, so that a mirrored variable takes a
// value that is the same on every replica.
func (mc *MergeContext) Assign(v *Variable, x *Merged) { mc.write(opAssign, v, x) }

// AssignAdd adds to all components.
func (mc *MergeContext) AssignAdd(v *Variable, x *Merged) { mc.write(opAdd, v, x) }

// AssignSub subtracts from all components.
func (mc *MergeContext) AssignSub(v *Variable, x *Merged) { mc.write(opSub, v, x) }

func (mc *MergeContext) write(w writeOp, v *Variable, x *Merged) {
	mc.open(w.name)
	c := mc.rc.capture(w.name, v)
	op := fmt.Sprintf("%s %q", w.name, v.path)
	node := x.node
	switch {
	case v.synchronization == OnRead && !x.mirrored:
		panic(fault(TypeError, op, "write it in the replicas", "a PerReplica value for a variable that is combined on read"))
	case v.synchronization == OnRead && v.aggregation == AggregateSum && w.name != opAssign.name:
		panic(fault(ValueError, op, "assign a total, or write in the replicas", "a variable that is summed on read has no one component to change"))
	case v.synchronization == OnRead && v.aggregation == AggregateSum:
		node = mc.rc.share(node)
	case !x.mirrored && !v.localWrites && mc.rc.strategy.replicas > 1:
		panic(fault(TypeError, op, "reduce it first, or create the variable with LocalWrites", "a PerReplica value where one for all replicas is expected"))
	}
	mc.rc.set(op, c, node, w.apply)
}
