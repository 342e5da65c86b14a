package eager

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/assign"
)

// trace is what calls in a merge call of a compiled step build the step's graph with. Package
// strategy implements it. Methods without an error panic with theirs, as all that builds graph
// does.
type trace interface {
	// Value returns what a call was given as a value of all replicas, Of a node of the step, and
	// Node the node of a value.
	Value(op string, x any) *strategy.Merged
	Of(node *graph.Node) *strategy.Merged
	Node(m *strategy.Merged) *graph.Node
	// Annotated returns a value split over the logical devices as a says, First replica 0's tensor
	// for all.
	Annotated(m *strategy.Merged, a logical.Annotation) *strategy.Merged
	First(m *strategy.Merged) *strategy.Merged
	// ReduceNest reduces the leaves of a nest over the replicas.
	ReduceNest(op strategy.ReduceOp, call string, nest any, axes ...int) (any, error)
	// State returns what building graph changes: the step's last node, and the values of its
	// variables.
	State() []*graph.Node
	// Read returns the variable in the replica, or across replicas.
	Read(v *strategy.Variable, across bool) *graph.Node
	// Parts returns the replicas' parts of a value.
	Parts(m *strategy.Merged) []*strategy.Merged
	// Write and Scatter write a variable.
	Write(w assign.Op, v *strategy.Variable, x any) error
	Scatter(op strategy.ScatterOp, v *strategy.Variable, indices, updates any) error
}
