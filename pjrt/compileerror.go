package pjrt

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ErrUntrusted is matched by the [*CompileError] of a program that was to be compiled in this process,
// and of which nobody says that it is trusted: see [Program].Trusted.
var ErrUntrusted = errkind.New(errkind.PermissionDeniedError, "pjrt: the program is not trusted")

// trustedField is the field of the error that matches ErrUntrusted.
const trustedField = "Program.Trusted"

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

// Is reports whether the error is that of a program which is not trusted, and the target is
// [ErrUntrusted].
func (e *CompileError) Is(target error) bool {
	return target == ErrUntrusted && e.Field == trustedField
}

// Kind returns InvalidArgumentError, or PermissionDeniedError for a program that is not trusted.
func (e *CompileError) Kind() errkind.Kind {
	if e.Is(ErrUntrusted) {
		return errkind.PermissionDeniedError
	}
	return errkind.InvalidArgumentError
}

// compileError makes the error of a field that has nothing to advise.
func compileError(field, format string, args ...any) *CompileError {
	return &CompileError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
