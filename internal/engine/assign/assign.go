package assign

import "github.com/gomlx/gomlx/core/graph"

// Op is a way to write: its name in errors and programs, and the function that computes the new value.
type Op struct {
	Name  string
	Apply func(old, x *graph.Node) *graph.Node
}

// Set replaces the value, Add adds to it, and Sub subtracts from it.
var (
	Set = Op{"assign", func(_, x *graph.Node) *graph.Node { return x }}
	Add = Op{"assign_add", graph.Add}
	Sub = Op{"assign_sub", graph.Sub}
)
