package ahead

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/child"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// The exit codes.
const (
	Failed = iota + 1
	Usage
	Missing
	Memory
	Died
	Findings
)

// categories are the sorts of failures, each with its exit code and the kind of error that stands for it.
var categories = map[string]struct {
	code int
	kind errkind.Kind
}{
	"failed": {Failed, errkind.RuntimeError}, "usage": {Usage, errkind.ValueError}, "missing": {Missing, errkind.NotFoundError},
	"memory": {Memory, errkind.ResourceExhaustedError}, "died": {Died, errkind.RuntimeError}, "findings": {Findings, errkind.RuntimeError},
	"interrupted": {0, errkind.CancelledError}, // whose code is the signal's
}

// UsageError reports a command line that cannot be run.
type UsageError struct{ Err error }

// Error returns the cause's text.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// Kind returns the kind of the error that it wraps, ValueError if that has none.
func (e *UsageError) Kind() errkind.Kind { return errkind.KindOr(e.Err, errkind.ValueError) }

// UsageErrorf returns the error of a command line that op cannot take: what is wrong, and what to
// write.
func UsageErrorf(op, hint, format string, args ...any) error {
	return &UsageError{&errkind.Fault{Op: op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}}
}

// NewUsageError returns the error of a command line that op cannot take because of err.
func NewUsageError(op string, err error) error { return &UsageError{&errkind.Fault{Op: op, Err: err}} }

// Failure is an error as JSON and across processes.
type Failure struct {
	// Category is usage, missing, memory, died, interrupted, findings or failed.
	Category string `json:"kind"`
	Message  string `json:"message"`
	// Log is what the compiler wrote, or its end.
	Log string `json:"log,omitempty"`
	// Memory are the figures of a program that does not fit.
	Memory *MemoryFailure `json:"memory,omitempty"`
	// Report is what is known of a program that does not fit; it moves into the [Outcome].
	Report *report.Report `json:"report,omitempty"`
	// Reported says that the failure is in an answer already.
	Reported bool `json:"-"`
}

// MemoryFailure are the figures of a program that does not fit.
type MemoryFailure struct {
	Used    string                 `json:"used,omitempty"`
	Limit   string                 `json:"limit,omitempty"`
	Excess  string                 `json:"excess,omitempty"`
	Largest []strategy.TensorBytes `json:"largest"`
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// Kind returns the kind of error that stands for the sort.
func (f *Failure) Kind() errkind.Kind {
	return cmp.Or(categories[f.Category].kind, errkind.RuntimeError)
}

// Code returns the exit code.
func (f *Failure) Code() int { return categories[f.Category].code }

// optionFlags are the flags that stand for options of package strategy.
var optionFlags = map[string]string{"LogicalDevices": "--logical", "Replicas": "--replicas", "BySlice": "--by-slice", "State": "--shard-state"}

// optionErrorText is the text of an error about an option for which there is a flag, or "".
func optionErrorText(err error) string {
	var option *strategy.OptionError
	var assignment *tpu.AssignmentError
	switch {
	case !errors.As(err, &option) || optionFlags[option.Option] == "":
		return ""
	case errors.As(err, &assignment):
		return errkind.Format(optionFlags[option.Option], assignment.Reason, nil, assignment.Hint)
	}
	return errkind.Format(optionFlags[option.Option], option.Reason, option.Err, "")
}

// FailureOf sorts an error into a kind. An option in it is named as the flag that stands for it.
func FailureOf(err error) *Failure {
	var f *Failure
	if errors.As(err, &f) {
		return f
	}
	f = &Failure{Category: "failed", Message: err.Error()}
	var died *child.Error
	var gone *worker.Error
	var compiler *pjrt.Error
	var memory *strategy.MemoryError
	switch {
	case errors.As(err, &memory):
		f.Category, f.Log = "memory", memory.Log
		f.Report, _ = report.Of(memory.Step) // nil if a sharding cannot be described: the error is more important
		f.Memory = &MemoryFailure{memory.Used, memory.Limit, memory.Excess, memory.Largest}
	case errors.As(err, &died):
		f.Category, f.Log = "died", died.OutputTail
	case errors.As(err, &gone) && gone.Reason != worker.NotStarted:
		f.Category, f.Log = "died", gone.StderrTail
	case hasType[*pjrt.FindError](err), hasType[*pjrt.PluginError](err):
		f.Category = "missing"
	case hasType[*UsageError](err), hasType[*tpu.AcceleratorError](err), hasType[*tpu.AssignmentError](err), hasType[*strategy.OptionError](err), errors.Is(err, tpu.ErrTopology), hasType[*logical.Error](err):
		f.Category = "usage"
		f.Message = cmp.Or(optionErrorText(err), f.Message)
	case errors.As(err, &compiler):
		f.Log = compiler.Log
		if compiler.Code == pjrt.ResourceExhausted {
			f.Category = "memory"
		}
	}
	return f
}

// hasType reports whether an error is, or wraps, one of a type.
func hasType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
