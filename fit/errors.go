package fit

import (
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

var (
	// ErrResume is matched by the error of a run that cannot go on from the checkpoints in a
	// directory: another run wrote them, or a run with other settings, data or hooks. The text says
	// what differs.
	ErrResume = errkind.New(errkind.ValueError, "fit: resume")
	// ErrWrite is matched by the error of a hook that could not write all of its file, as on a full
	// disk. Training went on: the run ended as it would have, and the file holds what it held
	// before.
	ErrWrite = errkind.New(errkind.ResourceExhaustedError, "fit: write")
	// ErrSave is matched by the error of a checkpoint that could not be saved. The earlier ones are
	// as they were.
	ErrSave = errkind.New(errkind.RuntimeError, "fit: save")
)

// notWritten is the error of a hook's file. lost is the number of bytes that are not in it; 0 if
// the file is written as a whole.
func notWritten(path string, lost int, err error) error {
	reason, it := "", "it"
	if lost > 0 {
		reason, it = fmt.Sprintf("the last %d bytes are not in it", lost), "them"
	}
	return &errkind.Fault{Match: ErrWrite, Subject: path, Reason: reason, Hint: "make room; a run that resumes from a checkpoint writes " + it, Err: err,
		Class: errkind.Or(err, errkind.ResourceExhaustedError)}
}

// notResumed is the error of a run that cannot go on from the checkpoint of a step in a directory.
func notResumed(directory string, step int64, cause error, hint, reason string, args ...any) error {
	return &errkind.Fault{Match: ErrResume, Op: fmt.Sprintf("fit: resume from step %d in %s", step, directory), Reason: fmt.Sprintf(reason, args...),
		Hint: hint, Err: cause, Class: errkind.Or(cause, errkind.ValueError)}
}

// notSaved is the error of a step's checkpoint.
func notSaved(directory string, step int64, err error) error {
	return &errkind.Fault{Match: ErrSave, Op: fmt.Sprintf("fit: save step %d in %s", step, directory), Err: err,
		Hint: "the earlier checkpoints are as they were", Class: errkind.Or(err, errkind.RuntimeError)}
}
