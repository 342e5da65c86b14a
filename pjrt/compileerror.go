package pjrt

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// CompileError reports what is wrong with a program or with its options, before any plugin sees
// them.
type CompileError struct {
	// Field is the field of [CompileOptions] or [Program].
	Field string
	// Reason says what is wrong with it.
	Reason string
	// Hint says what to write instead; it may be empty.
	Hint string
}

// Error returns "pjrt: compile: field: reason; hint".
func (e *CompileError) Error() string {
	return errkind.Text("pjrt: compile: "+e.Field, e.Reason, nil, e.Hint)
}

// Kind returns InvalidArgumentError.
func (*CompileError) Kind() errkind.Kind { return errkind.InvalidArgumentError }

// compileError makes the error of a field that has nothing to advise.
func compileError(field, format string, args ...any) *CompileError {
	return &CompileError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
