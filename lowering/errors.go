package lowering

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
)

var (
	// ErrNoData is returned by transfers on a Backend made without Options.Data.
	ErrNoData = errkind.New(errkind.RuntimeError, "lowering: this backend only lowers, it holds no data: set Options.Data, or use package lowering/backend")

	// ErrNotExecutable is returned by Lowered.Execute.
	ErrNotExecutable = errkind.New(errkind.RuntimeError, "lowering: this program was only lowered, it cannot run: set Options.Compile, or use package lowering/backend")

	// ErrFinalized is returned by every use of a builder whose backend was finalized.
	ErrFinalized = errkind.New(errkind.RuntimeError, "lowering: backend is finalized")

	// ErrCompiled is returned by uses of a builder after Compile.
	ErrCompiled = errkind.New(errkind.RuntimeError, "lowering: computation is already compiled")
)

// OpError says which op could not be lowered, on what operands, and why.
type OpError struct {
	Op       string         // GoMLX's name of the op, like "Add".
	Function string         // the function it was added to; "" for a closure.
	Operands []shapes.Shape // shapes of the operands that were understood, in order.
	Err      error          // the reason.
}

// Error returns the op with its operand shapes and the reason.
func (e *OpError) Error() string {
	var sb strings.Builder
	sb.WriteString("lowering: ")
	sb.WriteString(e.Op)
	sb.WriteByte('(')
	for i, s := range e.Operands {
		if i > 0 {
			sb.WriteString(", ")
		}
		sb.WriteString(s.String())
	}
	sb.WriteByte(')')
	if e.Function != "" && e.Function != compute.MainName {
		fmt.Fprintf(&sb, " in function %q", e.Function)
	}
	sb.WriteString(": ")
	sb.WriteString(e.Err.Error())
	return sb.String()
}

// Kind is the reason's, otherwise InvalidArgumentError.
func (e *OpError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.InvalidArgumentError) }

// Unwrap returns the reason.
func (e *OpError) Unwrap() error { return e.Err }
