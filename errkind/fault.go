package errkind

// Fault is the one shape of this module's errors: what was done, to what, what is wrong
// with it, what to write instead, the class of the mistake, and its cause. Packages whose
// callers match more than that have types of their own, whose text [Text] writes too.
type Fault struct {
	// Op is the operation with its package, such as "sharding: parse".
	Op string
	// Subject is what the operation was about, such as `tensor "w"`; it may be empty.
	Subject string
	// Reason says what is wrong, and with which value.
	Reason string
	// Hint says what to write or to do instead. It is empty where the cause says it.
	Hint string
	// Class is the kind; that of Err where it is Unknown.
	Class Kind
	// Err is the cause, if there is one.
	Err error
}

// Error returns "op subject: reason: cause; hint".
func (f *Fault) Error() string {
	what := f.Op
	if f.Subject != "" {
		what += " " + f.Subject
	}
	return Text(what, f.Reason, f.Err, f.Hint)
}

// Unwrap returns the cause.
func (f *Fault) Unwrap() error { return f.Err }

// Kind returns the fault's class, or its cause's.
func (f *Fault) Kind() Kind {
	if f.Class != Unknown {
		return f.Class
	}
	return Of(f.Err)
}

// Text returns "what: reason: cause; hint", the text of every error of this module. An
// empty reason or hint and a cause that is nil are left out, with what stands before them.
func Text(what, reason string, cause error, hint string) string {
	text := what
	if reason != "" {
		text += ": " + reason
	}
	if cause != nil {
		text += ": " + cause.Error()
	}
	if hint != "" {
		text += "; " + hint
	}
	return text
}
