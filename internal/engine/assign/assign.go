package assign

import "github.com/gomlx/gomlx/core/graph"

// Op is an operation that writes a variable.
type Op struct {
	// Name is the operation's name in errors and programs.
	Name string
	// Apply returns the new value for the variable's old value and the operand x.
	Apply func(old, x *graph.Node) *graph.Node
}

// Set replaces the value of a variable, Add adds to the value, and Sub subtracts from the value.
var (
	Set = Op{"assign", func(_, x *graph.Node) *graph.Node { return x }}
	Add = Op{"assign_add", graph.Add}
	Sub = Op{"assign_sub", graph.Sub}
)
