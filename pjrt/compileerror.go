package pjrt

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ErrUntrusted is matched by the [*CompileError] for a program that this process refused to compile
// because [Program].Trusted is not set.
var ErrUntrusted = errkind.New(errkind.PermissionDeniedError, "pjrt: the program is not trusted")

const trustedField = "Program.Trusted"

// CompileError reports an invalid program or an invalid option. The plugin was not called.
type CompileError struct {
	// Field is the invalid field of [CompileOptions] or [Program].
	Field string
	// Reason describes the problem.
	Reason string
	// Hint suggests a correction. It may be empty.
	Hint string
}

// Error returns "pjrt: compile: field: reason; hint".
func (e *CompileError) Error() string {
	return errkind.Format("pjrt: compile: "+e.Field, e.Reason, nil, e.Hint)
}

// Is implements errors.Is. The error matches [ErrUntrusted] if the program was rejected because it
// is not trusted.
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

func compileError(field, format string, args ...any) *CompileError {
	return &CompileError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
