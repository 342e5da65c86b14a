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

// contextAccess lets the other packages of this module call the methods of internalContext on a
// replica context, with [engine.Internal].
type contextAccess = engine.Access[internalContext]

// internalContext is the internal API of a replica context.
type internalContext struct{ *ReplicaContext }

// State returns the state of the trace.
func (m internalContext) State() *stepstate.State { return m.state }

// ArgumentValues returns the arguments for which the step is traced.
func (m internalContext) ArgumentValues() []Value { return m.values[:len(m.state.Arguments)] }

// CheckReplicaCode panics while a merge function is traced.
func (m internalContext) CheckReplicaCode(op string) { m.requireReplicaCode(op) }

// ToNode converts an argument of a call to a node of the step. host reports that it is one value for
// all replicas. A number is converted to the dtype of v if v is a scalar.
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

// BuildState returns the nodes that change when graph is built: the step's last node and the values of
// its variables.
func (m internalContext) BuildState() []*graph.Node {
	state := []*graph.Node{m.graph.LastNode()}
	for _, c := range m.captured {
		state = append(state, c.value)
	}
	return state
}

// AggregateWrite aggregates the replicas' values of a write by the variable's rule.
func (m internalContext) AggregateWrite(op string, v *Variable, x *graph.Node) *graph.Node {
	return m.aggregate(op, v, x)
}

// WriteVariable writes a value that is already aggregated.
func (m internalContext) WriteVariable(op string, v *Variable, x *graph.Node,
	apply func(old, x *graph.Node) *graph.Node) *graph.Node {
	return m.setVariable(op, m.capture(op, v), x, apply)
}

// ScatterRows combines rows of a variable that are already aggregated.
func (m internalContext) ScatterRows(op ScatterOp, v *Variable, indices, updates *graph.Node) *graph.Node {
	return m.scatterRows(op, m.capture(op.String(), v), indices, updates)
}

// Reduce reduces a value over the replicas as [internalStrategy.Reduction] returned.
func (m internalContext) Reduce(op ReduceOp, how byte, x *graph.Node) *graph.Node {
	return reduction(how).apply(m.ReplicaContext, op, x)
}

// FirstReplica returns replica 0's tensor on every replica.
func (m internalContext) FirstReplica(x *graph.Node) *graph.Node { return m.firstReplica(x) }

// MeanOfIntegers returns the mean of integers over the replicas and axes.
func (m internalContext) MeanOfIntegers(x *graph.Node, axes ...int) *graph.Node {
	return m.meanOfIntegers("reduce", x, axes...)
}

// DivideByReplicas returns x divided by the number of replicas. It panics if replicas cannot sum its
// dtype.
func (m internalContext) DivideByReplicas(x *graph.Node) *graph.Node {
	if err := checkReducible(m.strategy, x.DType()); err != nil {
		panic(err)
	}
	return divideByReplicas(x, m.strategy.replicas)
}

// SetVariableHook sets a callback for variables of the scope that the step uses for the first time. f
// returns the variable's path in the store, its parameter, and a function that receives the values
// written to the variable. Without a parameter the variable is handled by package strategy.
func (m internalContext) SetVariableHook(f func(op string, v *Variable) (path string, first *graph.Node,
	wrote func(x *graph.Node))) {
	m.onFirstUse = f
}

// StepVariable returns the state of a scope's variable in the trace.
func (m internalContext) StepVariable(v *Variable) region.StepVariable { return m.capture("Read", v) }

// RowCounts returns the number of the replica's real rows as an int32 scalar, and that of all
// replicas. Both are nil if no argument has padded rows.
func (m internalContext) RowCounts() (local, global *graph.Node) { return m.rowCounts() }

// WeightByRows scales a replica's mean over its rows so that the mean over the replicas is the mean
// over all rows.
func (m internalContext) WeightByRows(mean *graph.Node) *graph.Node { return m.weightByRows(mean) }

// GradientSharding returns how the gradient and the optimizer's state of a trained variable are
// sharded over the replicas, how they are sharded over the logical devices, and which state the
// replicas shard.
func (m internalContext) GradientSharding(v *model.Variable) (over spmd.ReplicaShard, split logical.Annotation,
	state logical.StateSharding) {
	return m.variables().gradientSharding(v)
}

// StoredSharding returns how a variable of the store is sharded over the replicas.
func (m internalContext) StoredSharding(v *model.Variable) spmd.ReplicaShard {
	return m.variables().replicaShard(v)
}

func (m internalContext) variables() *Variables { return m.strategy.Variables(m.state.Scope.Store()) }

// LayerSlices returns the slices of a stack for the layers of a loop; see [loop.Slicer]. shard is the
// replica's shard, or nil for a replicated stack.
func (m internalContext) LayerSlices(v *model.Variable) (shard *graph.Node, stacks []*graph.Node,
	layer func(slices []*graph.Node) *graph.Node) {
	return m.layerSlices(v)
}

// UnwrittenParameter returns a variable's parameter, or nil once the variable was written.
func (m internalContext) UnwrittenParameter(v *model.Variable) *graph.Node {
	return unwrittenParameter(v, m.graph)
}

// ReplicaShard returns the replica's shard of a variable's value.
func (m internalContext) ReplicaShard(v *model.Variable, value *graph.Node, over spmd.ReplicaShard) *graph.Node {
	return m.replicaShard(v, value, over)
}

// RestoreStatesWithoutRows restores the per-replica variables of replicas without rows. It must be
// called after all writes.
func (m internalContext) RestoreStatesWithoutRows() {
	rows, _ := m.rowCounts()
	for _, c := range m.captured {
		if rows != nil && c.changed && c.variable.perReplica() {
			c.value = selectIfRows(rows, c.value, m.graph.GetParameterByName(c.name))
		}
	}
}
