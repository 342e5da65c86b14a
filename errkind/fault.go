package errkind

import (
	"errors"
	"strings"
)

// Fault is the one shape of this module's errors: what was done, to what, what is wrong with it,
// what to write instead, the class of the mistake, and its cause. Packages whose callers match more
// than that have types of their own, whose text [Text] writes too.
type Fault struct {
	// Op is the operation with its package, such as "sharding: parse". Where it is empty, the text
	// of Match stands in its place.
	Op string
	// Subject is what the operation was about, such as `tensor "w"`; it may be empty.
	Subject string
	// Reason says what is wrong, and with which value.
	Reason string
	// Hint says what to write or to do instead. It is empty where the cause says it.
	Hint string
	// Class is the kind; that of Err where it is Unknown.
	Class Kind
	// Match is a package-level error, such as input.ErrState, that errors.Is finds in this one.
	Match error
	// Err is the cause, if there is one.
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
	return Text(what, f.Reason, f.Err, f.Hint)
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Is reports whether the fault's Match is the target.
func (f *Fault) Is(target error) bool { return f.Match != nil && errors.Is(f.Match, target) }

// Kind returns the fault's class, that of Match, or its cause's.
func (f *Fault) Kind() Kind {
	if f.Class != Unknown {
		return f.Class
	}
	if k := Of(f.Match); k != Unknown {
		return k
	}
	return Of(f.Err)
}

// Text returns "what: reason: cause; hint", the text of every error of this module. An empty reason
// or hint and a cause that is nil are left out, with what stands before them. A cause from the same
// package is printed without the package's name, which what begins with.
func Text(what, reason string, cause error, hint string) string {
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
