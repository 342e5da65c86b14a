package errkind

import (
	"errors"
	"strings"
)

// Fault is the common error type of this module. It has the operation, its subject, the problem, a
// correction, the kind and the cause. Packages with more specific errors define their own types and
// format them with [Format].
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
	// Class is the kind. If it is Unknown, the kind is that of Match or Err.
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

// Is reports whether Match matches target.
func (f *Fault) Is(target error) bool { return f.Match != nil && errors.Is(f.Match, target) }

// Kind returns Class, or the kind of Match, or the kind of Err.
func (f *Fault) Kind() Kind {
	if f.Class != Unknown {
		return f.Class
	}
	if k := KindOf(f.Match); k != Unknown {
		return k
	}
	return KindOf(f.Err)
}

// Format returns "what: reason: cause; hint", which is the format of all errors of this module.
// Parts that are empty or nil are omitted. what starts with the name of a package; if the text of
// cause starts with the same name, the name is omitted there.
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
