package fit

import (
	"fmt"
	"runtime/debug"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// OptionError says which option of a run, or of one of its hooks, does not fit, and why. Nothing
// has been done.
type OptionError struct{ Option, Reason, Hint string }

// Error names the option and what is wrong.
func (e *OptionError) Error() string {
	return errkind.Text("fit: "+e.Option, e.Reason, nil, e.Hint)
}

// Kind returns ValueError.
func (*OptionError) Kind() errkind.Kind { return errkind.ValueError }

func option(name, hint, reason string, args ...any) error {
	return &OptionError{Option: name, Reason: fmt.Sprintf(reason, args...), Hint: hint}
}

// StepError reports that a run ended at a step that could not be taken. The variables are those
// after Taken steps.
type StepError struct {
	// Step is the number of the step, from 1, and Taken that of the steps before it.
	Step, Taken int64
	// Doing says at what the run was: "reading the batch", "taking the step" or "reading the loss".
	Doing string
	Err   error
}

// Error names the step and the cause.
func (e *StepError) Error() string {
	return errkind.Text(fmt.Sprintf("fit: step %d: %s", e.Step, e.Doing), "", e.Err, "")
}

// Unwrap returns the cause.
func (e *StepError) Unwrap() error { return e.Err }

// Kind returns the cause's kind, or RuntimeError.
func (e *StepError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.RuntimeError) }

// HookError reports that a hook failed. The steps before it were taken.
type HookError struct {
	// Hook is the hook's name, and Step the number of steps that were taken.
	Hook string
	Step int64
	Err  error
}

// Error names the hook, the step and the cause.
func (e *HookError) Error() string {
	return errkind.Text(fmt.Sprintf("fit: hook %s after step %d", e.Hook, e.Step), "", e.Err, "")
}

// Unwrap returns the cause.
func (e *HookError) Unwrap() error { return e.Err }

// Kind returns the cause's kind, or RuntimeError.
func (e *HookError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.RuntimeError) }

// PanicError reports a panic of a hook or of the caller's iterator.
type PanicError struct {
	// Value is the value of the panic, and Stack the stack of its goroutine.
	Value any
	Stack string
}

// Error says what the panic said.
func (e *PanicError) Error() string {
	return errkind.Text("fit", fmt.Sprintf("it panicked: %v", e.Value), nil, "the error's Stack says where")
}

// Unwrap returns the panic's value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Kind returns the kind of the panic's value if it is an error, or RuntimeError.
func (e *PanicError) Kind() errkind.Kind { return errkind.Or(e.Unwrap(), errkind.RuntimeError) }

// caught, deferred, turns a panic into an error.
func caught(err *error) {
	if p := recover(); p != nil {
		*err = &PanicError{Value: p, Stack: string(debug.Stack())}
	}
}

// ShortError reports that the data ended before the steps that were asked for.
type ShortError struct {
	// Taken is the number of steps that were taken, Steps that of the steps asked for, and Passes
	// that of the passes over the data.
	Taken, Steps, Passes int64
}

// Error says how many steps there was data for.
func (e *ShortError) Error() string {
	return errkind.Text("fit: the data ended", fmt.Sprintf("%d of %d steps were taken", e.Taken, e.Steps), nil,
		"repeat the dataset (Repeat(-1) after its Shuffle), or ask for Epochs instead of Steps")
}

// Kind returns OutOfRangeError.
func (*ShortError) Kind() errkind.Kind { return errkind.OutOfRangeError }

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
		reason = fmt.Sprintf("%s was %s when it was saved and is %s here", e.What, orNothing(e.Saved), orNothing(e.Here))
	}
	return errkind.Text(fmt.Sprintf("fit: resume from step %d in %s", e.Step, e.Directory), reason, e.Err, e.Hint)
}

func orNothing(s string) string {
	if s == "" {
		return "nothing"
	}
	return s
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

// MetricError reports a metric that a hook waits for and nothing measures.
type MetricError struct {
	// Hook is the hook's name, Metric the metric's, and Known the names of those that are measured.
	Hook, Metric string
	Known        []string
}

// Error names the metric and those that there are.
func (e *MetricError) Error() string {
	return errkind.Text(fmt.Sprintf("fit: hook %s", e.Hook), fmt.Sprintf("nothing measures %q", e.Metric), nil,
		fmt.Sprintf("there are %q", e.Known))
}

// Kind returns NotFoundError.
func (*MetricError) Kind() errkind.Kind { return errkind.NotFoundError }

// DivergedError reports a metric that is not finite; see [Finite].
type DivergedError struct {
	// Metric is its name, Step the step that it belongs to, and Value a NaN or an infinity.
	Metric string
	Step   int64
	Value  float64
}

// Error names the metric and the step.
func (e *DivergedError) Error() string {
	return errkind.Text("fit", fmt.Sprintf("%s is %v at step %d: training diverged", e.Metric, e.Value, e.Step), nil,
		"go on from an earlier checkpoint with a smaller learning rate, or set train.Options.NonFinite")
}

// Kind returns InvalidArgumentError, that of TensorFlow's check_numerics.
func (*DivergedError) Kind() errkind.Kind { return errkind.InvalidArgumentError }
