package strategy

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/stepstate"
	"github.com/tpustrategy/tpustrategy/internal/region"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// contextAccess lets other packages of this module call the methods of internalContext, with
// [engine.Internal].
type contextAccess = engine.Access[internalContext]

// internalContext has methods of a replica context that are not part of the public API. Only
// packages of this module call them.
type internalContext struct{ *ReplicaContext }

func (m internalContext) State() *stepstate.State { return m.state }

// ArgumentValues returns the arguments for which the step is traced. They may have no contents.
func (m internalContext) ArgumentValues() []Value { return m.values[:len(m.state.Arguments)] }

// CheckReplicaCode panics with [ErrContext] if it is called in a merge call.
func (m internalContext) CheckReplicaCode(op string) { m.requireReplicaCode(op) }

// ToNode converts an argument of the call op to a graph node. A Go number is converted to the dtype
// of v if v is a scalar. The result host is true for a host value, which is the same on all
// replicas.
func (m internalContext) ToNode(op string, v *Variable, x any) (node *graph.Node, host bool) {
	return m.toNode(op, v, operandOf(x))
}

// IsVarying reports for each node whether its value may differ between replicas.
func (m internalContext) IsVarying(nodes ...*graph.Node) []bool {
	varying, err := m.varyingNodes(nodes, true)
	if err != nil {
		panic(err)
	}
	return varying
}

// BuildState returns the last node of the graph and the current values of the variables. The caller
// compares two results to detect added nodes and written variables.
func (m internalContext) BuildState() []*graph.Node {
	state := []*graph.Node{m.graph.LastNode()}
	for _, c := range m.captured {
		state = append(state, c.value)
	}
	return state
}

// AggregateWrite combines the values that the replicas write to v, by the aggregation of v.
func (m internalContext) AggregateWrite(op string, v *Variable, x *graph.Node) *graph.Node {
	return m.aggregate(op, v, x)
}

// WriteVariable writes a value that is already combined over the replicas. apply computes the
// variable's new value from its old value and the combined value.
func (m internalContext) WriteVariable(op string, v *Variable, x *graph.Node,
	apply func(old, x *graph.Node) *graph.Node) *graph.Node {
	return m.setVariable(op, m.capture(op, v), x, apply)
}

// ScatterRows combines rows of a variable with updates. The indices and updates are already
// combined over the replicas.
func (m internalContext) ScatterRows(op ScatterOp, v *Variable, indices, updates *graph.Node) *graph.Node {
	return m.scatterRows(op, m.capture(op.String(), v), indices, updates)
}

// Reduce reduces x over the replicas. [internalStrategy.Reduction] returns the code of the method
// to use.
func (m internalContext) Reduce(op ReduceOp, how byte, x *graph.Node) *graph.Node {
	return reduction(how).apply(m.ReplicaContext, op, x)
}

func (m internalContext) FirstReplica(x *graph.Node) *graph.Node { return m.firstReplica(x) }

// MeanOfIntegers returns the mean of integers over the replicas and over the given axes.
func (m internalContext) MeanOfIntegers(x *graph.Node, axes ...int) *graph.Node {
	return m.meanOfIntegers("reduce", x, axes...)
}

// DivideByReplicas divides x by the number of replicas. It panics if the dtype of x does not
// support sums over replicas.
func (m internalContext) DivideByReplicas(x *graph.Node) *graph.Node {
	if err := checkReducible(m.strategy, x.DType()); err != nil {
		panic(err)
	}
	return divideByReplicas(x, m.strategy.replicas)
}

// SetVariableHook sets the function f, which is called when the step first uses a variable of
// NewVariable. f returns a path in the store, a graph parameter for the variable, and a function
// that receives the values that the step writes. If f returns no parameter, package strategy
// creates it.
func (m internalContext) SetVariableHook(f func(op string, v *Variable) (path string, first *graph.Node,
	wrote func(x *graph.Node))) {
	m.onFirstUse = f
}

func (m internalContext) StepVariable(v *Variable) region.StepVariable { return m.capture("Read", v) }

// RowCounts returns this replica's number of rows without padding, an int32 scalar, and the sum of
// these numbers over all replicas. Both results are nil if no argument has padded rows.
func (m internalContext) RowCounts() (local, global *graph.Node) { return m.rowCounts() }

// WeightByRows scales a mean over the replica's rows. The average of the scaled means over the
// replicas is the mean over all rows.
func (m internalContext) WeightByRows(mean *graph.Node) *graph.Node { return m.weightByRows(mean) }

// GradientSharding returns how the gradient and the optimizer state of a trained variable are
// sharded: the dimension that is split over the replicas, the split over the logical devices, and
// which parts of the training state are sharded.
func (m internalContext) GradientSharding(v *model.Variable) (over spmd.ReplicaShard, split logical.Annotation,
	sharded logical.StateParts) {
	return m.variables().gradientSharding(v)
}

// StoredSharding returns the dimension of a store variable that is split over the replicas.
func (m internalContext) StoredSharding(v *model.Variable) spmd.ReplicaShard {
	return m.variables().replicaShard(v)
}

func (m internalContext) variables() *Variables { return m.strategy.Variables(m.state.Scope.Store()) }

// LayerSlices prepares a variable that stacks the weights of several layers, so that a loop can
// read the weights of one layer in each iteration; see [loop.Slicer]. The result shard is this
// replica's shard of the stack, or nil if the stack is not sharded.
func (m internalContext) LayerSlices(v *model.Variable) (shard *graph.Node, stacks []*graph.Node,
	layer func(slices []*graph.Node) *graph.Node) {
	return m.layerSlices(v)
}

// UnwrittenParameter returns the graph parameter of a store variable, or nil if the step has
// already written the variable.
func (m internalContext) UnwrittenParameter(v *model.Variable) *graph.Node {
	return unwrittenParameter(v, m.graph)
}

func (m internalContext) ReplicaShard(v *model.Variable, value *graph.Node, over spmd.ReplicaShard) *graph.Node {
	return m.replicaShard(v, value, over)
}

// RestoreStatesWithoutRows undoes the writes of a replica that received no rows to its own
// components of variables. Call it after all writes.
func (m internalContext) RestoreStatesWithoutRows() {
	rows, _ := m.rowCounts()
	for _, c := range m.captured {
		if rows != nil && c.changed && c.variable.perReplica() {
			c.value = selectIfRows(rows, c.value, m.graph.GetParameterByName(c.name))
		}
	}
}
