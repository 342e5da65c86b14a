package stepfile

import (
	"cmp"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/savedstep"
)

// Reason classifies why a step cannot be saved or loaded.
type Reason int

const (
	// NotAFile means that the file is not a step file, or not one of the requested kind.
	NotAFile Reason = iota + 1
	// Damaged means that the file is truncated or was changed.
	Damaged
	// Version means that the file has an unsupported version of the format.
	Version
	// Plugin means that the step was compiled by a different plugin or a different build of it.
	Plugin
	// Devices means that the step was compiled for a different kind of device.
	Devices
	// Topology means that the step was compiled for a different slice.
	Topology
	// Assignment means that the step was compiled for a different device assignment on the slice.
	Assignment
	// Variable means that the store's or the distributed variables do not match the step.
	Variable
	// Unsupported means that the step cannot be saved.
	Unsupported
	// Arguments means that a loaded step was called with arguments, or as a loop with a number of
	// steps, for which it was not compiled.
	Arguments
	// Hash means that the file does not have the hash [Options].SHA256.
	Hash
	// Axes means that the step's annotations use logical axes that differ from the strategy's.
	Axes
)

// reasons maps each reason to the text and the default hint of its errors.
var reasons = map[Reason]struct{ text, hint string }{
	NotAFile: {"it is no step file", "give a file that Save wrote"},
	Damaged:  {"it is damaged", "copy the file again, or save the step again"},
	Version:  {"it has another version", "save the step again with this version of the module"},
	Plugin:   {"it was compiled by another plugin", "compile and save the step with the plugin that runs it"},
	Devices:  {"it was compiled for other devices", "compile and save the step for these devices"},
	Topology: {"it was compiled for another topology", "compile and save the step for this topology"},
	Assignment: {"it was compiled for another device assignment",
		"give the strategy the options that the step was compiled with"},
	Axes: {"it was compiled for other logical axes",
		"give the strategy the LogicalAxes that the step was compiled with"},
	Variable:    {"its variables do not fit", ""},
	Unsupported: {"it cannot be saved", ""},
	Arguments:   {"it was compiled for other arguments", ""},
	Hash:        {"it is another file", "give the hash of this file, if you trust it"},
}

// String returns a phrase for an error message, such as "it is damaged".
func (r Reason) String() string {
	return cmp.Or(reasons[r].text, fmt.Sprintf("Reason(%d)", int(r)))
}

// Error reports why a compiled step cannot be saved or loaded.
type Error struct {
	Reason Reason
	// Variable is the name of the variable that does not match, if Reason is [Variable].
	Variable string
	// Detail describes the found and the expected state. Hint replaces the reason's suggestion.
	Detail, Hint string
	// Err is the cause, or nil.
	Err error
}

// Error returns the reason, the detail and a suggestion.
func (e *Error) Error() string {
	what := "stepfile: " + e.Reason.String()
	if e.Variable != "" {
		what += fmt.Sprintf(": variable %q", e.Variable)
	}
	return errkind.Format(what, e.Detail, e.Err, cmp.Or(e.Hint, reasons[e.Reason].hint))
}

// Kind returns DataLossError for a damaged file, NotImplementedError for a step that cannot be
// saved and for a file of an unsupported version, and otherwise ValueError.
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

// problems maps each problem that package strategy reports to a reason.
var problems = map[savedstep.Problem]Reason{
	savedstep.Damaged: Damaged, savedstep.BadVariable: Variable, savedstep.Unsupported: Unsupported,
	savedstep.OtherArguments: Arguments,
}

// newError returns an [*Error] for a problem that package strategy reports.
func newError(m savedstep.Mismatch) error {
	return &Error{Reason: problems[m.Problem], Variable: m.Variable, Detail: m.Detail, Hint: m.Hint, Err: m.Err}
}
