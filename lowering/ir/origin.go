package ir

import (
	"regexp"
	"strconv"

	"github.com/tpustrategy/tpustrategy/internal/enum"
)

// Origin describes the source line and the layer of a value, for reports and errors. The program's
// text contains a number instead of the origin, see [Module.Text].
type Origin struct {
	// File is the name of a Go file, with the import path of its package as directory. Line is the
	// user's line that called the op. An op of a gradient has the line of the original op. Other
	// ops that libraries add, such as those of an optimizer, have the line of an operand, or else
	// the library's line.
	File string
	Line int
	// Function contains the line. Call is the function that the line calls, such as layers.Dense.
	// Both are "" for a line of a library.
	Function, Call string
	// Layer is the scope of the variables that the op depends on, or "" if there are none.
	Layer string
	Pass  Pass
}

// Pass is the phase of a training step that an op belongs to.
type Pass int

const (
	// Forward is the computation of the user's code.
	Forward Pass = iota
	// Backward is the computation of gradients.
	Backward
	// Update is the phase that consumes gradients, such as an optimizer's update.
	Update
)

// String returns "forward", "backward" or "update".
func (p Pass) String() string { return enum.Name(p, "forward", "backward", "update") }

// statementNumber matches a statement's number in an instruction name. Compilers insert the numbers
// of enclosing calls and loops before it.
var statementNumber = regexp.MustCompile(NumberSeparator + `([0-9]{1,9})\b`)

// OriginOf returns the origin of a compiled instruction. name is the instruction's name, and
// origins is a result of [Module.Text]. OriginOf returns nil if the name contains no statement
// number.
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
