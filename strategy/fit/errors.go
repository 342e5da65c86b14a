package fit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// option is the error of an option of a run, or of one of its hooks, that does not fit. Nothing has
// been done.
func option(name, hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "fit: " + name, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}

// only returns the options of a call that takes them once, or leaves them out.
func only[T any](name string, opts []T) (o T, err error) {
	if len(opts) > 1 {
		return o, option(name, "give one", "%d options", len(opts))
	}
	return append(slices.Clone(opts), o)[0], nil
}

// noMetric is the error of a metric that a hook waits for and nothing measures.
func noMetric(hook, metric string, known []string) error {
	return &errkind.Fault{Op: "fit: hook " + hook, Reason: fmt.Sprintf("nothing measures %q", metric), Hint: fmt.Sprintf("there are %q", known),
		Class: errkind.NotFoundError}
}

// errShort is matched by the error of data that ended before the steps that were asked for.
var errShort = errkind.New(errkind.OutOfRangeError, "fit: the data ended")

// ResumeError reports that a run cannot go on from the checkpoints in a directory: another run
// wrote them, or a run with other settings, data or hooks.
type ResumeError struct {
	// Directory is that of the checkpoints, and Step that of the checkpoint.
	Directory string
	Step      int64
	// What differs, such as `setting "seed"`, with its value in the checkpoint and here.
	What, Saved, Here string
	Hint              string
	Err               error
}

// Error says what differs.
func (e *ResumeError) Error() string {
	reason := e.What
	if e.Saved != "" || e.Here != "" {
		reason = fmt.Sprintf("%s was %s when it was saved and is %s here", e.What, cmp.Or(e.Saved, "nothing"), cmp.Or(e.Here, "nothing"))
	}
	return errkind.Text(fmt.Sprintf("fit: resume from step %d in %s", e.Step, e.Directory), reason, e.Err, e.Hint)
}

// Unwrap returns the cause.
func (e *ResumeError) Unwrap() error { return e.Err }

// Kind returns the cause's kind, or ValueError.
func (e *ResumeError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.ValueError) }

// WriteError reports that a hook could not write all of its file, as on a full disk. Training went
// on: the run ended as it would have, and the file holds what it held before.
type WriteError struct {
	// Path is the file's, and Bytes the number of bytes that are not in it; 0 if the file is written
	// as a whole.
	Path  string
	Bytes int
	Err   error
}

// Error names the file and the cause.
func (e *WriteError) Error() string {
	reason, hint := "", "make room; a run that resumes from a checkpoint writes it"
	if e.Bytes > 0 {
		reason, hint = fmt.Sprintf("the last %d bytes are not in it", e.Bytes), "make room; a run that resumes from a checkpoint writes them"
	}
	return errkind.Text("fit: write "+e.Path, reason, e.Err, hint)
}

// Unwrap returns the cause.
func (e *WriteError) Unwrap() error { return e.Err }

// Kind returns the cause's kind, or ResourceExhaustedError.
func (e *WriteError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.ResourceExhaustedError) }
