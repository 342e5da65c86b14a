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
	// ErrCorrupt matches the errors of files that are damaged, truncated or in another format. The
	// errors are [*CorruptError]s.
	ErrCorrupt = errkind.New(errkind.DataLossError, "checkpoint: corrupt")
	// ErrNotFound matches the errors for an empty store, and for a step or variable that does not exist.
	ErrNotFound = errkind.New(errkind.NotFoundError, "checkpoint: none")
	// ErrStepOrder matches the error of a Save whose step is not later than all steps in the store.
	ErrStepOrder = errkind.New(errkind.ValueError, "checkpoint: step not after the last")
	// ErrBusy matches the error of a save to a store to which another run saves.
	ErrBusy = errkind.New(errkind.FailedPreconditionError, "checkpoint: directory in use")
	// ErrVersion matches the error of a checkpoint in a format that only a later version of this
	// program reads. The checkpoint is not damaged, so that [Manager.LatestIntact] does not skip
	// it. The error also matches errors.ErrUnsupported.
	ErrVersion error = &errkind.Fault{Op: "checkpoint: of a later version", Match: errors.ErrUnsupported}
	// ErrVariable matches the error of a variable that cannot be saved or restored. The error is an
	// *errkind.Fault whose Subject is the variable's path.
	ErrVariable = errkind.New(errkind.ValueError, "checkpoint: variable")
	// ErrMissingParts matches the error of a save if some processes did not save their part of the
	// variables in time. The text lists the processes.
	ErrMissingParts = errkind.New(errkind.UnavailableError, "checkpoint: no part")
	// ErrClosed matches the errors of a checkpoint or a manager that is closed, or was never opened.
	ErrClosed = errkind.New(errkind.RuntimeError, "checkpoint: the object is closed")
)

// CorruptError reports a damaged file. It matches [ErrCorrupt].
type CorruptError struct {
	// File is the path of the damaged file.
	File string
	// Variable is the path of the damaged variable, or empty if it is not known.
	Variable string
	// Reason describes the damage.
	Reason string
	// Err is the cause, or nil.
	Err error
}

func (e *CorruptError) Error() string {
	what := ErrCorrupt.Error() + ": " + e.File
	if e.Variable != "" {
		what += fmt.Sprintf(": variable %q", e.Variable)
	}
	return errkind.Format(what, e.Reason, e.Err, "restore an earlier checkpoint, as Manager.LatestIntact does")
}

// Kind returns DataLossError.
func (*CorruptError) Kind() errkind.Kind { return errkind.DataLossError }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// Is reports whether the target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// PathError reports a path that cannot be used because it is a URL, a pipe, a device or a symbolic
// link.
type PathError = files.Error

// OwnerError reports that another run saves to the store. Either the other run is still running, or
// it has saved since this run last read the store. OwnerError matches [ErrBusy]. Use a separate
// store for each run. To continue from the other run's checkpoints, open the manager again, or set
// [ManagerOptions].TakeOver.
type OwnerError struct {
	// Directory is the folder's path, or the store's URL.
	Directory string
	// Host and PID identify the other run's process. Since is the time of its last save, and Step
	// is the saved step. They are zero if the other run left no record.
	Host  string
	PID   int
	Since time.Time
	Step  int64
	// Running reports whether the process is still running on this machine. If false, the process
	// may have ended or may be running on another machine.
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
	return errkind.Format(ErrBusy.Error(), fmt.Sprintf("%s saved step %d to %s%s", who, e.Step, e.Directory, when), nil,
		"give each run its own directory, or open its manager again to continue from there (with ManagerOptions.TakeOver "+
			"also while the other process runs)")
}

// Kind returns FailedPreconditionError.
func (*OwnerError) Kind() errkind.Kind { return errkind.FailedPreconditionError }

// Is reports whether the target is ErrBusy.
func (e *OwnerError) Is(target error) bool { return target == ErrBusy }

// MismatchError reports variables that exist only in the group or only in the checkpoint. No
// variable was changed.
type MismatchError struct {
	// Missing lists the variables of the group that the checkpoint does not have.
	Missing []string
	// Unexpected lists the variables of the checkpoint that the group neither has nor creates.
	Unexpected []string
}

func (e *MismatchError) Error() string {
	var parts []string
	if len(e.Missing) > 0 {
		parts = append(parts, fmt.Sprintf("it has no %s (AllowMissing leaves them unchanged)", firstNames(e.Missing)))
	}
	if len(e.Unexpected) > 0 {
		parts = append(parts, fmt.Sprintf("the group does not have %s (AllowUnexpected ignores them)",
			firstNames(e.Unexpected)))
	}
	return errkind.Format("checkpoint: different variables", strings.Join(parts, ", "), nil, "")
}

// Kind returns ValueError.
func (*MismatchError) Kind() errkind.Kind { return errkind.ValueError }

// argumentError returns an error of kind ValueError for an invalid argument of the operation op.
func argumentError(op, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "checkpoint: " + op, Reason: fmt.Sprintf(format, args...), Hint: hint,
		Class: errkind.ValueError}
}

// variableError returns an error that matches [ErrVariable] and names the variable at path.
func variableError(path, reason, hint string, err error) error {
	return &errkind.Fault{Match: ErrVariable, Subject: strconv.Quote(path), Reason: reason, Hint: hint,
		Class: errkind.KindOr(err, errkind.ValueError), Err: err}
}

func nilVariableError(op string, i int) error {
	return argumentError(op, "leave it out", "variable %d of the group is nil", i)
}

// wrapError adds the name of the operation and of its file or variable to an error of the file
// system or a context.
func wrapError(op, subject string, err error) error {
	return &errkind.Fault{Op: "checkpoint: " + op, Subject: subject, Err: err}
}

func notFoundError(hint, format string, args ...any) error {
	return &errkind.Fault{Match: ErrNotFound, Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// firstNames formats the first five names of a list for an error.
func firstNames(names []string) string {
	const limit = 5
	text := fmt.Sprintf("%q", names[:min(len(names), limit)])
	if len(names) > limit {
		text += fmt.Sprintf(" and %d more", len(names)-limit)
	}
	return text
}
