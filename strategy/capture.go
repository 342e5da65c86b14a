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

// capture is a variable that a step uses: an argument of its program, and also a result if the step
// writes it.
type capture struct {
	variable *Variable
	name     string
	value    *graph.Node // the variable's value at this point of the trace
	changed  bool
	// initial is the value at the start of the step.
	initial *graph.Node
	// wrote, if not nil, is called with each written value.
	onWrite func(x *graph.Node)
	// borrowed is set for a variable of another strategy, whose value is copied for each run.
	borrowed bool
}

// capture returns the step's capture of a variable, and creates it at the first use.
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
		panic(&Error{Match: ErrContext, Op: "strategy: " + op, Reason: fmt.Sprintf("variable %q is met first inside a loop body or a branch of the step", v.path), Hint: "call Read before it"})
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

// Read returns the variable in the replica: the replica's own component of an [OnRead] variable,
// without communication, or the common value of an [OnWrite] variable. Read returns the value of
// the last write before it in the step. The variable becomes an argument of the step; a step that
// writes the variable reuses its memory for the new value.
//
// A closure of the step, the body of [graph.While] or a branch of [graph.If], may use a variable
// that the step read before. Otherwise Read panics with [ErrContext]. A closure cannot write
// variables: return the value, and write it after the loop or the branch. Layers of loop.Layers and
// blocks of remat.Block read and write variables like the step.
//
// A variable of another strategy can be read, but not written, if the other strategy has all
// devices of this one: each run copies its cross-replica value on the devices. Otherwise Read
// panics with [ErrOtherStrategy].
func (rc *ReplicaContext) Read(v *Variable) *graph.Node { return rc.capture("Read", v).value }

// ReadReduced returns the variable's cross-replica value: the components of an [OnRead] variable
// combined by its aggregation, with one all-reduce, or the value of an [OnWrite] variable.
func (rc *ReplicaContext) ReadReduced(v *Variable) *graph.Node {
	c := rc.capture("ReadAcross", v)
	rc.requireReplicaCode("ReadAcross")
	if v.synchronization == OnWrite || c.borrowed {
		return c.value
	}
	return rc.combine(v.aggregation, c.value)
}

// Assign sets the variable to a new value and returns that value: TensorFlow's assign in a replica.
// x is a node or a host value with the variable's shape.
//
// A write to an [OnRead] variable changes the replica's own component. A write to an [OnWrite]
// variable is aggregated over the replicas by the variable's aggregation, with one all-reduce in
// the step; without an aggregation Assign panics with an [*Error] of kind ValueError, unless
// [VariableOptions.LocalWrites] allows the write. A host value is one value for all replicas: its
// SUM is an error, its MEAN is the value. A Go number is converted to the dtype of a scalar
// variable; a number that the dtype cannot represent, such as 2.5 or 1e10 for an Int32, is an
// [*Error].
func (rc *ReplicaContext) Assign(v *Variable, x any) *graph.Node {
	return rc.write("Assign", v, x, func(_, x *graph.Node) *graph.Node { return x })
}

// AssignAdd adds x to the variable, like [ReplicaContext.Assign]: x is aggregated, then added. It
// is TensorFlow's assign_add in a replica.
func (rc *ReplicaContext) AssignAdd(v *Variable, x any) *graph.Node {
	return rc.write("AssignAdd", v, x, graph.Add)
}

// AssignSub subtracts x from the variable, like [ReplicaContext.AssignAdd]: TensorFlow's
// assign_sub.
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

// requireOwn panics if the variable belongs to another strategy, for writes.
func (c *capture) requireOwn(op string) {
	if c.borrowed {
		panic(fault.OtherStrategy(op, fmt.Sprintf("variable %q", c.variable.path)))
	}
}

// setVariable writes x, which is already aggregated.
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

// write sets the variable's value at this point of the trace.
func (c *capture) write(x *graph.Node) *graph.Node {
	c.value, c.changed = x, true
	if c.onWrite != nil {
		c.onWrite(x)
	}
	return x
}

// requireMain panics in a loop body or a branch, whose writes the rest of the step could not read.
func (rc *ReplicaContext) requireMain(op string) {
	if !rc.inMain() {
		panic(&Error{Match: ErrContext, Op: "strategy: " + op, Reason: "called inside a loop body or a branch of the step", Hint: "return the value from there and write it after"})
	}
}

// toNode returns a node for an operand: the value of a variable in the replica, the component of a
// variable, or a constant for a host value. A number is converted to the dtype of v. host reports
// that the value is one for all replicas.
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
		panic(&Error{Match: ErrContext, Op: "strategy: " + op, Reason: fmt.Sprintf("given a %T, which the step's graph does not hold", o.x), Hint: "pass it to the step as an argument"})
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

// aggregate combines the replicas' values of a write by the variable's aggregation.
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

// combine aggregates replica-varying x.
func (rc *ReplicaContext) combine(a VariableAggregation, x *graph.Node) *graph.Node {
	if a == AggregateFirst {
		return rc.firstReplica(x) // any dtype is possible, because x is not summed
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

// firstReplica returns x of replica 0.
func (rc *ReplicaContext) firstReplica(x *graph.Node) *graph.Node {
	if rc.strategy.replicas == 1 {
		return x
	}
	return rc.selectReplica(constant(rc.graph, dtypes.Int32, 0), x)
}

// selectReplica returns x of a replica, bit for bit.
func (rc *ReplicaContext) selectReplica(replica, x *graph.Node) *graph.Node {
	here := graph.Equal(rc.ReplicaIDInSyncGroup(), replica)
	if x.DType() == dtypes.Bool {
		return spmd.AllReduce(graph.And(x, here), spmd.Broadcast)
	}
	zeros := graph.BroadcastToDims(constant(rc.graph, x.DType(), 0), x.Shape().Dimensions...)
	return spmd.AllReduce(graph.Where(here, x, zeros), spmd.Broadcast)
}

// requireReplicaCode panics with [ErrContext] after the trace, inside a merge call and for nodes of
// another graph.
func (rc *ReplicaContext) requireReplicaCode(op string, nodes ...*graph.Node) {
	rc.requireTracing(op, nodes...)
	if rc.state.Merging {
		panic(&Error{Match: ErrContext, Op: "strategy: " + op, Reason: "the replica context is used inside MergeCall", Hint: "use the merge context"})
	}
}

// A region, which is a layer or a block, returns the values that it writes to captured variables as
// results.
var _ region.StepVariable = (*capture)(nil)

// Name implements region.StepVariable.
func (c *capture) Name() string { return c.variable.path }

// InitialValue implements region.StepVariable.
func (c *capture) InitialValue() *graph.Node { return c.initial }

// Value implements region.StepVariable.
func (c *capture) Value() *graph.Node { return c.value }

// SetValue implements region.StepVariable.
func (c *capture) SetValue(x *graph.Node) {
	c.write(x)
	c.changed = x != c.initial
}

// PerReplica reports whether the components of the variable may differ.
func (c *capture) PerReplica() bool { return c.variable.perReplica() }

// capturedVariables lists the variables that the step uses.
func (rc *ReplicaContext) capturedVariables() []region.StepVariable {
	all := make([]region.StepVariable, len(rc.captured))
	for i, c := range rc.captured {
		all[i] = c
	}
	return all
}
