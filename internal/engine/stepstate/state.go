package stepstate

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
)

// State is the state of a step that is traced. One goroutine uses it.
type State struct {
	// Scope is the root scope, in which layers make their variables; nil for a step without a store.
	Scope *model.Scope
	// scopes are the scopes that ScopeAt has returned, by path.
	scopes map[string]*model.Scope
	// Arguments are the step's, Sizes the real sizes of those that are padded, by argument.
	Arguments []*graph.Node
	Sizes     map[int]*graph.Node
	// Rows and AllRows are the real rows of the replica and of all, int32 scalars, once they were
	// asked for.
	Rows, AllRows *graph.Node
	// Resized is the size of the rows of microbatches in a trace for another one, otherwise 0.
	Resized int
	// Parts are the replica's parts of values that were brought together from the replicas' parts, by
	// the whole value. PartParameters are the parameters that are parts.
	Parts          map[*graph.Node]*graph.Node
	PartParameters []*graph.Node
	// Slices are the parts of stacked variables of which layers get slices, by the variables' paths.
	Slices map[string]*graph.Node
	// Taken, if there is one, is whether what the step writes is kept, but for Counters, which count
	// what was done.
	Taken    *graph.Node
	Counters []*model.Variable
	// Merging is set while a merge function is traced: the replica's calls refuse.
	Merging bool
	// Weighted are the sum and the weight of a loss function that returns both.
	Weighted [2]*graph.Node
	// Structure is the nest of the results, if the step returns one.
	Structure any
}

// New returns the state of a step that begins.
func New() *State {
	return &State{Parts: map[*graph.Node]*graph.Node{}, Slices: map[string]*graph.Node{}}
}

// Within makes the state that of a part of the step, with a new root scope and no slices of stacks.
// leave gives it back what it had, also the arguments and the rows.
func (s *State) Within() (leave func()) {
	was, end := *s, s.NewScopes()
	s.Slices = map[string]*graph.Node{}
	return func() {
		end()
		s.Arguments, s.Sizes, s.Rows, s.AllRows = was.Arguments, was.Sizes, was.Rows, was.AllRows
	}
}
