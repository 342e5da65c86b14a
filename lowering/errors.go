package lowering

import (
	"fmt"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
)

var (
	// ErrNoData is returned by transfers of a Backend without Options.Data.
	ErrNoData = errkind.New(errkind.RuntimeError,
		"lowering: this backend only lowers, it holds no data: set Options.Data, or use package gomlx")

	// ErrNotExecutable is returned by Executable.Execute.
	ErrNotExecutable = errkind.New(errkind.RuntimeError,
		"lowering: this program was only lowered, it cannot run: set Options.Compile, or use package gomlx")

	// ErrFinalized is returned by the methods of a builder after Backend.Finalize.
	ErrFinalized = errkind.New(errkind.RuntimeError, "lowering: backend is finalized")

	// ErrCompiled is returned by the methods of a builder after Builder.Compile.
	ErrCompiled = errkind.New(errkind.RuntimeError, "lowering: computation is already compiled")
)

// OpError reports that an op could not be lowered.
type OpError struct {
	// Op is GoMLX's name of the op, such as "Add". Function is the name of the function that
	// contains the op, or "" for a closure.
	Op, Function string
	// Operands contains the shapes of the operands that could be read, in order.
	Operands []shapes.Shape
	// Err is the reason.
	Err error
}

// Error returns "lowering: op(operands): reason".
func (e *OpError) Error() string {
	operands := make([]string, len(e.Operands))
	for i, s := range e.Operands {
		operands[i] = s.String()
	}
	what := "lowering: " + e.Op + "(" + strings.Join(operands, ", ") + ")"
	if e.Function != "" && e.Function != compute.MainName {
		what += fmt.Sprintf(" in function %q", e.Function)
	}
	return errkind.Format(what, "", e.Err, "")
}

// Kind returns the kind of Err, by default InvalidArgumentError.
func (e *OpError) Kind() errkind.Kind { return errkind.KindOr(e.Err, errkind.InvalidArgumentError) }

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }

// newFault returns an error for a failure that is not caused by a single op.
func newFault(subject, reason, hint string) error {
	return &errkind.Fault{Op: "lowering:", Subject: subject, Reason: reason, Hint: hint,
		Class: errkind.InvalidArgumentError}
}

// must returns v, or panics with err. [Function.addOps] recovers and returns the error.
func must[T any](v T, err error) T {
	check(err)
	return v
}

// check panics with err if it is not nil. [Function.addOps] recovers and returns the error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
