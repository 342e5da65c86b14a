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

// Exit codes of the commands.
const (
	Failed = iota + 1
	Usage
	Missing
	Memory
	Died
	Findings
)

// categories maps the categories of failures to exit codes and error kinds.
var categories = map[string]struct {
	code int
	kind errkind.Kind
}{
	"failed": {Failed, errkind.RuntimeError}, "usage": {Usage, errkind.ValueError},
	"missing": {Missing, errkind.NotFoundError},
	"memory":  {Memory, errkind.ResourceExhaustedError}, "died": {Died, errkind.RuntimeError}, "findings": {Findings,
		errkind.RuntimeError},
	"interrupted": {0, errkind.CancelledError}, // whose code is the signal's
}

// UsageError reports an invalid command line.
type UsageError struct{ Err error }

// Error returns the text of the cause.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UsageError) Unwrap() error { return e.Err }

// Kind returns the kind of the cause, or ValueError if it has none.
func (e *UsageError) Kind() errkind.Kind { return errkind.KindOr(e.Err, errkind.ValueError) }

// UsageErrorf returns an error for an invalid command line of the command op. format and args
// describe the reason, and hint suggests a correction.
func UsageErrorf(op, hint, format string, args ...any) error {
	return &UsageError{&errkind.Fault{Op: op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}}
}

// NewUsageError returns an error for an invalid command line of the command op. err is the cause.
func NewUsageError(op string, err error) error { return &UsageError{&errkind.Fault{Op: op, Err: err}} }

// Failure is an error that can be encoded as JSON and sent to another process.
type Failure struct {
	// Category is usage, missing, memory, died, interrupted, findings or failed.
	Category string `json:"kind"`
	Message  string `json:"message"`
	// Log is the compiler's output, or the end of a long output.
	Log string `json:"log,omitempty"`
	// Memory contains the sizes of a program that does not fit.
	Memory *MemoryFailure `json:"memory,omitempty"`
	// Report describes a program that does not fit, as far as known. OutcomeOf moves it to [Outcome].
	Report *report.Report `json:"report,omitempty"`
	// Reported is true if the failure was already printed as part of the output.
	Reported bool `json:"-"`
}

// MemoryFailure contains the sizes of a program that does not fit into the memory of a device.
type MemoryFailure struct {
	Used    string                 `json:"used,omitempty"`
	Limit   string                 `json:"limit,omitempty"`
	Excess  string                 `json:"excess,omitempty"`
	Largest []strategy.TensorBytes `json:"largest"`
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// Kind returns the error kind of the category.
func (f *Failure) Kind() errkind.Kind {
	return cmp.Or(categories[f.Category].kind, errkind.RuntimeError)
}

// Code returns the exit code.
func (f *Failure) Code() int { return categories[f.Category].code }

// optionFlags maps options of package strategy to the flags that set them.
var optionFlags = map[string]string{"LogicalDevices": "--logical", "Replicas": "--replicas", "BySlice": "--by-slice",
	"State": "--shard-state"}

// optionErrorText returns the message for an invalid option that has a flag, or "" for other errors.
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

// FailureOf classifies an error. The message for an invalid option names the option's flag.
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
	case hasType[*UsageError](err), hasType[*tpu.AcceleratorError](err), hasType[*tpu.AssignmentError](err),
		hasType[*strategy.OptionError](err), errors.Is(err, tpu.ErrTopology), hasType[*logical.Error](err):
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

// hasType reports whether the tree of err contains an error of type E.
func hasType[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
