package errkind

import (
	"errors"
	"strings"
)

// Fault is the common error type of this module. It contains the failed operation, its subject, the
// problem, a suggested correction, the kind and the cause. Packages with more specific errors
// define their own types, whose texts they build with [Format].
type Fault struct {
	// Op is the package and the operation, such as "sharding: parse". If it is empty, the text
	// starts with the text of Match.
	Op string
	// Subject is the object of the operation, such as `tensor "w"`. It may be empty.
	Subject string
	// Reason describes the problem, including the invalid value.
	Reason string
	// Hint suggests a correction. It is empty if the cause contains one.
	Hint string
	// Class is the kind. If Class is Unknown, the kind of Match or Err is used.
	Class Kind
	// Match is a package-level error, such as input.ErrState, that errors.Is finds in the fault.
	Match error
	// Err is the cause, or nil.
	Err error
}

// Error returns "op subject: reason: cause; hint".
func (f *Fault) Error() string {
	what := f.Op
	if what == "" && f.Match != nil {
		what = f.Match.Error()
	}
	if f.Subject != "" {
		what += " " + f.Subject
	}
	return Format(what, f.Reason, f.Err, f.Hint)
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Is implements errors.Is. The error matches the same targets as Match.
func (f *Fault) Is(target error) bool { return f.Match != nil && errors.Is(f.Match, target) }

// Kind returns Class if it is set. Otherwise it returns the kind of Match or, if Match has no kind,
// the kind of Err.
func (f *Fault) Kind() Kind {
	if f.Class != Unknown {
		return f.Class
	}
	if k := KindOf(f.Match); k != Unknown {
		return k
	}
	return KindOf(f.Err)
}

// Format returns "what: reason: cause; hint", the format of all error texts of this module. Empty
// arguments are omitted. The argument what must start with the name of a package. If the text of
// cause starts with the same name, the name is not repeated.
func Format(what, reason string, cause error, hint string) string {
	text := what
	if reason != "" {
		text += ": " + reason
	}
	if cause != nil {
		pkg, _, _ := strings.Cut(what, ":")
		text += ": " + strings.TrimPrefix(cause.Error(), pkg+": ")
	}
	if hint != "" {
		text += "; " + hint
	}
	return text
}
