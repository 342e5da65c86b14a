package ir

import "github.com/tpustrategy/tpustrategy/internal/enum"

// Origin says which code a value comes from, for people to read. Nothing of a program's text depends
// on it: the text numbers its statements, and [Module.Text] returns the origin of each number.
type Origin struct {
	// File is a Go file by its package's import path, without the folders of a machine, and Line the
	// line: that of the user's code which asked for the op. An op of a gradient has the line of the
	// op that it is a gradient of; an op of an optimizer, or another one that no line of the user's
	// asked for, has the line of the op that it goes on from, or else the library's own.
	File string
	Line int
	// Function is the function that the line stands in, and Call what the line called to make the
	// op, such as layers.Dense; "" for a line of a library.
	Function, Call string
	// Layer is the scope of the variables that the op reads, or of those that what it reads was made
	// with; "" if there are none.
	Layer string
	Pass  Pass
}

// Pass is the part of a training step that an op belongs to.
type Pass int

const (
	// Forward is what the user's code computes.
	Forward Pass = iota
	// Backward are gradients.
	Backward
	// Update is what is made of gradients.
	Update
)

// String returns "forward", "backward" or "update".
func (p Pass) String() string { return enum.Name(p, "forward", "backward", "update") }
