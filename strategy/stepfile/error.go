package stepfile

import (
	"cmp"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/saved"
)

// Reason says why a step cannot be saved or loaded.
type Reason int

const (
	// NotAFile is the reason of a file of another kind.
	NotAFile Reason = iota + 1
	// Damaged is the reason of a file that lost or changed something.
	Damaged
	// Version is the reason of a file of another version of the form.
	Version
	// Plugin is the reason of a step that another plugin compiled, or another build of it.
	Plugin
	// Devices is the reason of a step for devices of another kind.
	Devices
	// Topology is the reason of a step for another slice.
	Topology
	// Assignment is the reason of a step for another device assignment on the slice.
	Assignment
	// Variable is the reason of a step whose variables do not fit those of the store, or the
	// distributed ones.
	Variable
	// Unsupported is the reason of a step that cannot be saved.
	Unsupported
	// Arguments is the reason of a loaded step that is run for other arguments, or as a loop of
	// another number of steps, than it was compiled for.
	Arguments
	// Hash is the reason of a file that is not the one of [Options].SHA256.
	Hash
	// Axes is the reason of a step whose splits name other logical axes than the strategy has.
	Axes
)

// reasons are, for each reason, a phrase and what to do where the error knows nothing better.
var reasons = map[Reason]struct{ text, hint string }{
	NotAFile:    {"it is no step file", "give a file that Save wrote"},
	Damaged:     {"it is damaged", "copy the file again, or save the step again"},
	Version:     {"it has another version", "save the step again with this version of the module"},
	Plugin:      {"it was compiled by another plugin", "compile and save the step with the plugin that runs it"},
	Devices:     {"it was compiled for other devices", "compile and save the step for these devices"},
	Topology:    {"it was compiled for another topology", "compile and save the step for this topology"},
	Assignment:  {"it was compiled for another device assignment", "give the strategy the options that the step was compiled with"},
	Axes:        {"it was compiled for other logical axes", "give the strategy the LogicalAxes that the step was compiled with"},
	Variable:    {"its variables do not fit", ""},
	Unsupported: {"it cannot be saved", ""},
	Arguments:   {"it was compiled for other arguments", ""},
	Hash:        {"it is another file", "give the hash of this file, if you trust it"},
}

// String returns a phrase, such as "it is damaged".
func (r Reason) String() string {
	return cmp.Or(reasons[r].text, fmt.Sprintf("Reason(%d)", int(r)))
}

// Error says why a compiled step cannot be saved or loaded.
type Error struct {
	Reason Reason
	// Variable is the name of the variable that does not fit, if Reason is [Variable].
	Variable string
	// Detail says what was found and what was expected. Hint says what to do, where the reason
	// alone does not say it.
	Detail, Hint string
	// Err is the cause, if there is one.
	Err error
}

// Error says the reason, what was found, and what to do.
func (e *Error) Error() string {
	what := "stepfile: " + e.Reason.String()
	if e.Variable != "" {
		what += fmt.Sprintf(": variable %q", e.Variable)
	}
	return errkind.Text(what, e.Detail, e.Err, cmp.Or(e.Hint, reasons[e.Reason].hint))
}

// Kind returns DataLossError for a file that is damaged, NotImplementedError for a step that cannot
// be saved and for a file of another version, otherwise ValueError.
func (e *Error) Kind() errkind.Kind {
	switch e.Reason {
	case Damaged:
		return errkind.DataLossError
	case Version, Unsupported:
		return errkind.NotImplementedError
	}
	return errkind.ValueError
}

// Unwrap returns the cause, which may be nil.
func (e *Error) Unwrap() error { return e.Err }

// problems are the reasons of what the strategy finds.
var problems = map[saved.Problem]Reason{
	saved.Damaged: Damaged, saved.BadVariable: Variable, saved.Unsupported: Unsupported, saved.OtherArguments: Arguments,
}

// fail makes an error of what the strategy found.
func fail(m saved.Misfit) error {
	return &Error{Reason: problems[m.Problem], Variable: m.Variable, Detail: m.Detail, Hint: m.Hint, Err: m.Err}
}
