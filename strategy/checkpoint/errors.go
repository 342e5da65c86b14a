package checkpoint

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

var (
	// ErrCorrupt matches the errors of files that are damaged, cut short or not of this format.
	// These errors are [*CorruptError]s.
	ErrCorrupt = errkind.New(errkind.DataLossError, "checkpoint: corrupt")
	// ErrNone matches the error of a place without a checkpoint, or without the step or the variable
	// that was asked for.
	ErrNone = errkind.New(errkind.NotFoundError, "checkpoint: none")
	// ErrStep matches the error of a step that cannot be saved because the place has that step or a
	// later one.
	ErrStep = errkind.New(errkind.ValueError, "checkpoint: step not after the last")
	// ErrBusy matches the error of a save to a place that another run saves to.
	ErrBusy = errkind.New(errkind.FailedPreconditionError, "checkpoint: directory in use")
	// ErrVersion matches the error of a checkpoint that a later version of this program wrote, in a
	// form that this version does not read. The checkpoint is not damaged, so no call passes over
	// it to an earlier one. The error matches errors.ErrUnsupported, too.
	ErrVersion error = &errkind.Fault{Op: "checkpoint: of a later version", Match: errors.ErrUnsupported}
	// ErrVariable matches the error of a variable that cannot be saved or restored: an
	// *errkind.Fault, whose Subject is the variable's path.
	ErrVariable = errkind.New(errkind.ValueError, "checkpoint: variable")
	// ErrNoPart matches the error of a save of which the parts of some processes did not come. The
	// text says of which.
	ErrNoPart = errkind.New(errkind.UnavailableError, "checkpoint: no part")
	// ErrClosed matches the errors of a checkpoint or a manager that is closed, or was never opened.
	ErrClosed = errkind.New(errkind.RuntimeError, "checkpoint: closed")
)

// CorruptError reports which file is damaged, and how the damage shows. It matches [ErrCorrupt].
type CorruptError struct {
	// File is the path of the damaged file.
	File string
	// Variable is the path of the variable whose bytes are damaged, if it is known.
	Variable string
	// Reason says how the damage shows.
	Reason string
	// Err is the cause, if there is one.
	Err error
}

func (e *CorruptError) Error() string {
	what := ErrCorrupt.Error() + ": " + e.File
	if e.Variable != "" {
		what += fmt.Sprintf(": variable %q", e.Variable)
	}
	return errkind.Text(what, e.Reason, e.Err, "restore an earlier checkpoint, as Manager.LatestIntact does")
}

// Kind returns DataLossError.
func (*CorruptError) Kind() errkind.Kind { return errkind.DataLossError }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// Is reports whether the target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// PathError reports that a path cannot be used, because it is a URL, or because a pipe, a device or
// a symbolic link stands there.
type PathError = files.Error

// OwnerError reports that another run saves to the place: a run that is still running, or that has
// saved there since this run looked last. It matches [ErrBusy]. Give each run a place of its own. To
// go on from what the other run saved, open the manager again, or set [ManagerOptions].TakeOver.
type OwnerError struct {
	// Directory is the folder's path, or the store's URL.
	Directory string
	// Host and PID name the other run's machine and process. Since is the time of its last save,
	// and Step the step that it saved. They are zero if the other run left no record.
	Host  string
	PID   int
	Since time.Time
	Step  int64
	// Running is true if the process still runs on this machine. Otherwise it may have ended, or
	// run on another machine.
	Running bool
}

func (e *OwnerError) Error() string {
	who := "another run"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d on %s", e.PID, e.Host)
		if e.Running {
			who += ", which still runs,"
		}
	}
	when := ""
	if !e.Since.IsZero() {
		when = fmt.Sprintf(" at %s", e.Since.Format(time.RFC3339))
	}
	return errkind.Text(ErrBusy.Error(), fmt.Sprintf("%s saved step %d to %s%s", who, e.Step, e.Directory, when), nil,
		"give each run a directory of its own, or open its manager again to go on from there (ManagerOptions.TakeOver takes it from a process that runs)")
}

// Kind returns FailedPreconditionError.
func (*OwnerError) Kind() errkind.Kind { return errkind.FailedPreconditionError }

// Is reports whether the target is ErrBusy.
func (e *OwnerError) Is(target error) bool { return target == ErrBusy }

// MismatchError reports the variables that only the group or only the checkpoint has. The restore
// has changed nothing.
type MismatchError struct {
	// Missing lists the variables of the group that the checkpoint does not have.
	Missing []string
	// Unexpected lists the variables of the checkpoint that the group neither has nor creates.
	Unexpected []string
}

func (e *MismatchError) Error() string {
	var parts []string
	if len(e.Missing) > 0 {
		parts = append(parts, fmt.Sprintf("it has no %s (AllowMissing leaves them as they are)", few(e.Missing)))
	}
	if len(e.Unexpected) > 0 {
		parts = append(parts, fmt.Sprintf("nothing takes its %s (AllowUnexpected leaves them out)", few(e.Unexpected)))
	}
	return errkind.Text("checkpoint: other variables", strings.Join(parts, ", "), nil, "")
}

// Kind returns ValueError.
func (*MismatchError) Kind() errkind.Kind { return errkind.ValueError }

// wrong returns the error of a value that op cannot take.
func wrong(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "checkpoint: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}
}

// faultOf is the error of a variable that cannot be saved or restored.
func faultOf(path, reason, hint string, err error) error {
	return &errkind.Fault{Match: ErrVariable, Subject: strconv.Quote(path), Reason: reason, Hint: hint, Class: errkind.Or(err, errkind.ValueError), Err: err}
}

// nilVariable is the error of a group with a hole.
func nilVariable(op string, i int) error {
	return wrong(op, "leave it out", "variable %d of the group is nil", i)
}

// doing puts what was done, and to what, before an error of the file system or a context.
func doing(op, subject string, err error) error {
	return &errkind.Fault{Op: "checkpoint: " + op, Subject: subject, Err: err}
}

// none is an error that matches ErrNone.
func none(hint, format string, args ...any) error {
	return &errkind.Fault{Match: ErrNone, Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// few lists the first names of a list.
func few(names []string) string {
	const most = 5
	text := fmt.Sprintf("%q", names[:min(len(names), most)])
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}
