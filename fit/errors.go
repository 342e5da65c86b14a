package fit

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

func optionError(name, hint, reason string, args ...any) error {
	return &errkind.Fault{Op: "fit: " + name, Reason: fmt.Sprintf(reason, args...), Hint: hint, Class: errkind.ValueError}
}

// singleOption returns the element of opts, or the zero value if opts is empty. If opts has several
// elements, it returns an error that contains name.
func singleOption[T any](name string, opts []T) (o T, err error) {
	if len(opts) > 1 {
		return o, optionError(name, "give one", "%d options", len(opts))
	}
	return append(slices.Clone(opts), o)[0], nil
}

// missingMetricError returns an error for a hook that requires a metric that is published neither
// by the step nor by another hook.
func missingMetricError(hook, metric string, known []string) error {
	return &errkind.Fault{Op: "fit: hook " + hook, Reason: fmt.Sprintf("nothing measures %q", metric),
		Hint:  fmt.Sprintf("there are %q", known),
		Class: errkind.NotFoundError}
}

// errDataEnded matches the error of a run whose data ended before Options.Steps.
var errDataEnded = errkind.New(errkind.OutOfRangeError, "fit: the data ended")

var (
	// ErrResume matches the error of a run that cannot resume from a checkpoint because another run
	// wrote it, or because the settings, data or hooks differ. The text names the difference.
	ErrResume = errkind.New(errkind.ValueError, "fit: resume")
	// ErrWrite matches the error of a hook that could not write its file completely, for example
	// because the disk is full. Training is not affected, and the file keeps its earlier contents.
	ErrWrite = errkind.New(errkind.ResourceExhaustedError, "fit: write")
	// ErrSave matches the error of a checkpoint that could not be saved. Earlier checkpoints are
	// unchanged.
	ErrSave = errkind.New(errkind.RuntimeError, "fit: save")
)

// writeError returns an error for a file that a hook could not write completely. lost is the number
// of missing bytes; 0 means that nothing was written.
func writeError(path string, lost int, err error) error {
	reason, it := "", "it"
	if lost > 0 {
		reason, it = fmt.Sprintf("the last %d bytes are not in it", lost), "them"
	}
	return &errkind.Fault{Match: ErrWrite, Subject: path, Reason: reason,
		Hint: "make room; a run that resumes from a checkpoint writes " + it, Err: err,
		Class: errkind.KindOr(err, errkind.ResourceExhaustedError)}
}

func resumeError(directory string, step int64, cause error, hint, reason string, args ...any) error {
	return &errkind.Fault{Match: ErrResume, Op: fmt.Sprintf("fit: resume from step %d in %s", step, directory),
		Reason: fmt.Sprintf(reason, args...),
		Hint:   hint, Err: cause, Class: errkind.KindOr(cause, errkind.ValueError)}
}

func saveError(directory string, step int64, err error) error {
	return &errkind.Fault{Match: ErrSave, Op: fmt.Sprintf("fit: save step %d in %s", step, directory), Err: err,
		Hint: "the earlier checkpoints are unchanged", Class: errkind.KindOr(err, errkind.RuntimeError)}
}
