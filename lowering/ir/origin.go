package ir

import (
	"regexp"
	"strconv"

	"github.com/tpustrategy/tpustrategy/internal/enum"
)

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

// statementNumber matches the number of a statement in a name. Compilers keep it at the end of the
// name, after the numbers of enclosing calls and loops.
var statementNumber = regexp.MustCompile(NumberSeparator + `([0-9]{1,9})\b`)

// OriginOf returns the origin of an instruction by the name that the compiler gave it, or nil if
// the name contains no number of a statement. origins are the origins that [Module.Text] returned.
func OriginOf(name string, origins []*Origin) *Origin {
	all := statementNumber.FindAllStringSubmatch(name, -1)
	if len(all) == 0 {
		return nil
	}
	// The regular expression allows only few digits.
	if n, _ := strconv.Atoi(all[len(all)-1][1]); n < len(origins) {
		return origins[n]
	}
	return nil
}
