package stepstate

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
)

// State is the state of a step function while it is traced. It must not be used concurrently.
type State struct {
	// Scope is the root scope in which layers create variables, or nil for a step without a store.
	Scope  *model.Scope
	scopes map[string]*model.Scope // results of ScopeAt, by path
	// Arguments are the step's arguments. Sizes has, for the index of each padded argument, an
	// int32 vector with the sizes of its dimensions without padding.
	Arguments []*graph.Node
	Sizes     map[int]*graph.Node
	// Rows and AllRows are the numbers of rows without padding of the replica and of all replicas,
	// as int32 scalars. They are nil until they are first used.
	Rows, AllRows *graph.Node
	// MicrobatchRows is the padded number of rows of a microbatch if the step is traced once more
	// with another padding, and otherwise 0.
	MicrobatchRows int
	// Shards has the replica's shard of each value that was gathered from the shards of all
	// replicas. ShardParameters are the graph parameters that are shards.
	Shards          map[*graph.Node]*graph.Node
	ShardParameters []*graph.Node
	// Slices has the replica's shard of each stacked variable that loops over layers slice, by
	// path.
	Slices map[string]*graph.Node
	// Applied is a bool scalar: if it is false, the variables keep their values from before the
	// step, except for Counters. Nil means that the step always writes its variables.
	Applied  *graph.Node
	Counters []*model.Variable
	// Merging is true while a merge function is traced. Calls of the replica are errors then.
	Merging bool
	// Weighted is the sum and the weight that a weighted loss function returned, or two nil nodes.
	Weighted [2]*graph.Node
	// Structure is the nest of the step's results, or nil if the results are not nested.
	Structure any
}

// New returns the state at the beginning of a trace.
func New() *State {
	return &State{Shards: map[*graph.Node]*graph.Node{}, Slices: map[string]*graph.Node{}}
}

// Enter prepares the state for tracing the body of a loop. The body has unused variable scopes and
// no Slices. The function leave restores the scopes, the arguments and the row counts of the code
// around the loop.
func (s *State) Enter() (leave func()) {
	was, end := *s, s.NewScopes()
	s.Slices = map[string]*graph.Node{}
	return func() {
		end()
		s.Arguments, s.Sizes, s.Rows, s.AllRows = was.Arguments, was.Sizes, was.Rows, was.AllRows
	}
}
