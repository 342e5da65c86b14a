package ir

import "github.com/tpustrategy/tpustrategy/internal/enum"

// Origin is the source line of a value, for reports and errors. The program's text does not depend
// on it: the text numbers its statements, and [Module.Text] returns the origin of each number.
type Origin struct {
	// File is a Go file with the import path of its package, without local directories. Line is the
	// line of the user's code that called the op. An op of a gradient has the line of the original
	// op. An op without a line of the user's code, such as an op of an optimizer, has the line of
	// the op whose result it uses, or otherwise the line in the library.
	File string
	Line int
	// Function is the function that contains the line. Call is the function that the line called,
	// such as layers.Dense. Both are "" for a line of a library.
	Function, Call string
	// Layer is the scope of the variables that the op depends on, or "" if there are none.
	Layer string
	Pass  Pass
}

// Pass is the part of a training step that an op belongs to.
type Pass int

const (
	// Forward is the computation of the user's code.
	Forward Pass = iota
	// Backward is the computation of gradients.
	Backward
	// Update is the computation with gradients as inputs, such as an optimizer's update.
	Update
)

// String returns "forward", "backward" or "update".
func (p Pass) String() string { return enum.Name(p, "forward", "backward", "update") }
