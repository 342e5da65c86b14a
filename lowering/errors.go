package lowering

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
)

var (
	// ErrNoData is returned by transfers on a Backend made without Options.Data.
	ErrNoData = errors.New("lowering: this backend only lowers, it holds no data: set Options.Data, or use package lowering/backend")

	// ErrNotExecutable is returned by Lowered.Execute.
	ErrNotExecutable = errors.New("lowering: this program was only lowered, it cannot run: set Options.Compile, or use package lowering/backend")

	// ErrFinalized is returned by every use of a builder whose backend was finalized.
	ErrFinalized = errors.New("lowering: backend is finalized")

	// ErrCompiled is returned by uses of a builder after Compile.
	ErrCompiled = errors.New("lowering: computation is already compiled")
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

// Unwrap returns the reason.
func (e *OpError) Unwrap() error { return e.Err }
