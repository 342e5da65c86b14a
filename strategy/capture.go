package strategy

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/internal/engine/number"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// capture represents a variable that a step uses. The variable is an argument of the step's
// program. If the step writes the variable, the new value is also a result of the program.
type capture struct {
	variable *Variable
	name     string
	value    *graph.Node // the variable's value at this point of the trace
	changed  bool
	initial  *graph.Node
	// onWrite, if not nil, is called with each written value.
	onWrite func(x *graph.Node)
	// borrowed is set for a variable of another strategy. Each run copies its value.
	borrowed bool
}

// capture returns the step's capture of a variable, and creates it at the first use. Errors contain
// op, the name of the call.
func (rc *ReplicaContext) capture(op string, v *Variable) *capture {
	rc.requireTracing(op)
	if v == nil {
		panic(v.checkOwnedBy(rc.strategy, op))
	}
	borrowed := v.strategy != rc.strategy
	if borrowed {
		if _, ok := mapPartitions(rc.strategy.runtime, v.strategy.runtime); !ok {
			panic(v.checkOwnedBy(rc.strategy, op))
		}
	}
	if c := rc.findCapture(v); c != nil {
		return c
	}
	if !rc.inMain() {
		panic(&Error{Match: ErrContext, Op: "strategy: " + op,
			Reason: fmt.Sprintf("variable %q is met first inside a loop body or a branch of the step", v.path),
			Hint:   "call Read before it"})
	}
	c := &capture{variable: v, name: fmt.Sprintf("distributed_%d", len(rc.captured)), borrowed: borrowed}
	if rc.onFirstUse != nil && !borrowed {
		if path, first, wrote := rc.onFirstUse(op, v); first != nil {
			c.name, c.value, c.onWrite = path, first, wrote
			rc.strategy.Variables(rc.state.Scope.Store()).registerProxy(path, v)
		}
	}
	if c.value == nil {
		c.value = graph.Parameter(rc.graph, c.name, v.Shape())
	}
	c.initial = c.value
	rc.captured = append(rc.captured, c)
	return c
}

func (rc *ReplicaContext) findCapture(v *Variable) *capture {
	for _, c := range rc.captured {
		if c.variable == v {
			return c
		}
	}
	return nil
}

func (rc *ReplicaContext) findCaptureByName(name string) *capture {
	for _, c := range rc.captured {
		if c.name == name {
			return c
		}
	}
	return nil
}

// Read returns the value of the variable in this replica, including earlier writes in the step. For
// an [OnRead] variable this is the replica's component, read without communication. For an
// [OnWrite] variable it is the common value of all replicas.
//
// A loop body ([graph.While]) or a branch ([graph.If]) can read only a variable that the step has
// read before; otherwise Read panics with [ErrContext]. It cannot write variables: return the value
// from the loop or branch, and write it afterwards. Layers of loop.Layers and blocks of remat.Block
// have no such limits.
//
// A variable of another strategy can be read, but not written. Each run copies its cross-replica
// value on the devices. Read panics with [ErrOtherStrategy] if the other strategy does not have all
// devices of this one.
func (rc *ReplicaContext) Read(v *Variable) *graph.Node { return rc.capture("Read", v).value }

// ReadReduced is like [Variable.Read], but for use in a step. It combines the replicas' components
// of an [OnRead] variable by the variable's aggregation, with one all-reduce.
func (rc *ReplicaContext) ReadReduced(v *Variable) *graph.Node {
	c := rc.capture("ReadAcross", v)
	rc.requireReplicaCode("ReadAcross")
	if v.synchronization == OnWrite || c.borrowed {
		return c.value
	}
	return rc.combine(v.aggregation, c.value)
}

// Assign sets the variable to x and returns the new value, like TensorFlow's assign in a replica. x
// is a node or a host value with the variable's shape. A Go number is converted to the dtype of a
// scalar variable. If the dtype cannot represent the number, such as 2.5 for Int32, Assign panics
// with an [*Error].
//
// A write to an [OnRead] variable changes only this replica's component. A write to an [OnWrite]
// variable is combined over the replicas by the variable's aggregation, with one all-reduce. A host
// value counts as one value for all replicas: its MEAN is the value, and its SUM is an error. If
// the variable has no aggregation, Assign panics with an [*Error] of kind ValueError, unless
// [VariableOptions].LocalWrites is set.
func (rc *ReplicaContext) Assign(v *Variable, x any) *graph.Node {
	return rc.write("Assign", v, x, func(_, x *graph.Node) *graph.Node { return x })
}

// AssignAdd combines x over the replicas like [ReplicaContext.Assign] and adds the result to the
// variable, like TensorFlow's assign_add.
func (rc *ReplicaContext) AssignAdd(v *Variable, x any) *graph.Node {
	return rc.write("AssignAdd", v, x, graph.Add)
}

// AssignSub combines x over the replicas like [ReplicaContext.Assign] and subtracts the result from
// the variable, like TensorFlow's assign_sub.
func (rc *ReplicaContext) AssignSub(v *Variable, x any) *graph.Node {
	return rc.write("AssignSub", v, x, graph.Sub)
}

func (rc *ReplicaContext) write(op string, v *Variable, x any, apply func(old, x *graph.Node) *graph.Node) *graph.Node {
	c := rc.capture(op, v)
	op = fmt.Sprintf("%s %q", op, v.path)
	c.requireOwn(op)
	rc.requireReplicaCode(op)
	return rc.setVariable(op, c, rc.aggregate(op, v, x), apply)
}

func (c *capture) requireOwn(op string) {
	if c.borrowed {
		panic(fault.OtherStrategy(op, fmt.Sprintf("variable %q", c.variable.path)))
	}
}

// setVariable writes a value that is already combined over the replicas. apply computes the
// variable's new value from its old value and the combined value.
func (rc *ReplicaContext) setVariable(op string, c *capture, x *graph.Node,
	apply func(old, x *graph.Node) *graph.Node) *graph.Node {
	c.requireOwn(op)
	if !x.Shape().Equal(c.value.Shape()) {
		panic(fault.New(errkind.ValueError, op, "give a value of the variable's shape and dtype",
			"a value of shape %s for a variable of shape %s", x.Shape(), c.value.Shape()))
	}
	rc.requireMain(op)
	return c.write(apply(c.value, x))
}

func (c *capture) write(x *graph.Node) *graph.Node {
	c.value, c.changed = x, true
	if c.onWrite != nil {
		c.onWrite(x)
	}
	return x
}

// requireMain panics in a loop body or a branch, because the rest of the step could not read a
// value that is written there.
func (rc *ReplicaContext) requireMain(op string) {
	if !rc.inMain() {
		panic(&Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called inside a loop body or a branch of the step",
			Hint: "return the value from there and write it after"})
	}
}

// toNode converts an operand to a graph node. The operand may be a node, a variable, a component of
// a variable or a host value. A Go number is converted to the dtype of v. The result host is true
// for a host value, which is the same on all replicas.
func (rc *ReplicaContext) toNode(op string, v *Variable, o operand) (node *graph.Node, host bool) {
	switch {
	case o.node != nil:
		if o.node.Graph() != rc.graph {
			panic(fault.New(errkind.TypeError, op, "give nodes and values of this step", "a %T of another step", o.x))
		}
		return o.node, false
	case o.variable != nil:
		c := rc.capture(op, o.variable)
		if o.replica < 0 || c.borrowed || !o.variable.perReplica() || rc.strategy.replicas == 1 {
			return c.value, false
		}
		return rc.selectReplica(constant(rc.graph, dtypes.Int32, float64(o.replica)), c.value), false
	case o.kind == deviceOperand:
		panic(&Error{Match: ErrContext, Op: "strategy: " + op,
			Reason: fmt.Sprintf("given a %T, which the step's graph does not hold", o.x),
			Hint:   "pass it to the step as an argument"})
	case v != nil && len(v.shape) == 0 && number.IsNumber(o.x):
		x, err := number.Convert(op, o.x, v.dtype)
		if err != nil {
			panic(err)
		}
		o = operandOf(x)
	}
	t, err := o.toHostTensor(op)
	if err != nil {
		panic(err)
	}
	return graph.ConstTensor(rc.graph, t), true
}

// aggregate combines the values that the replicas write to v, by the aggregation of v.
func (rc *ReplicaContext) aggregate(op string, v *Variable, x any) *graph.Node {
	node, host := rc.toNode(op, v, operandOf(x))
	if v.synchronization == OnRead {
		return node
	}
	switch v.aggregation {
	case AggregateNone:
		if !v.localWrites && rc.strategy.replicas > 1 {
			panic(fault.NoAggregation(op))
		}
		return node
	case AggregateSum:
		if host && rc.strategy.replicas > 1 {
			panic(fault.NotDistributed(op))
		}
	default:
		if host {
			return node // equal on all replicas
		}
	}
	return rc.combine(v.aggregation, node)
}

// combine combines the replicas' values of x by the aggregation a.
func (rc *ReplicaContext) combine(a VariableAggregation, x *graph.Node) *graph.Node {
	if a == AggregateFirst {
		return rc.firstReplica(x) // x may have any dtype, because it is not summed
	}
	if err := checkReducible(rc.strategy, x.DType()); err != nil {
		panic(err)
	}
	reduction, err := a.ReduceOp()
	if err != nil {
		panic(err)
	}
	return allReduce(reduction, x, rc.strategy.replicas)
}

// firstReplica broadcasts replica 0's value of x to all replicas.
func (rc *ReplicaContext) firstReplica(x *graph.Node) *graph.Node {
	if rc.strategy.replicas == 1 {
		return x
	}
	return rc.selectReplica(constant(rc.graph, dtypes.Int32, 0), x)
}

// selectReplica broadcasts the given replica's value of x to all replicas, without changing a bit.
func (rc *ReplicaContext) selectReplica(replica, x *graph.Node) *graph.Node {
	here := graph.Equal(rc.ReplicaIDInSyncGroup(), replica)
	if x.DType() == dtypes.Bool {
		return spmd.AllReduce(graph.And(x, here), spmd.Broadcast)
	}
	zeros := graph.BroadcastToDims(constant(rc.graph, x.DType(), 0), x.Shape().Dimensions...)
	return spmd.AllReduce(graph.Where(here, x, zeros), spmd.Broadcast)
}

// requireReplicaCode panics with [ErrContext] if the trace has ended, inside a merge call, or if a
// node belongs to another graph.
func (rc *ReplicaContext) requireReplicaCode(op string, nodes ...*graph.Node) {
	rc.requireTracing(op, nodes...)
	if rc.state.Merging {
		panic(&Error{Match: ErrContext, Op: "strategy: " + op, Reason: "the replica context is used inside MergeCall",
			Hint: "use the merge context"})
	}
}

// The layers of loop.Layers and the blocks of remat.Block read and write captured variables through
// this interface.
var _ region.StepVariable = (*capture)(nil)

func (c *capture) Name() string { return c.variable.path }

func (c *capture) InitialValue() *graph.Node { return c.initial }

func (c *capture) Value() *graph.Node { return c.value }

func (c *capture) SetValue(x *graph.Node) {
	c.write(x)
	c.changed = x != c.initial
}

func (c *capture) PerReplica() bool { return c.variable.perReplica() }

func (rc *ReplicaContext) capturedVariables() []region.StepVariable {
	all := make([]region.StepVariable, len(rc.captured))
	for i, c := range rc.captured {
		all[i] = c
	}
	return all
}
