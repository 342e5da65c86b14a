package checkpoint

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

var (
	// ErrCorrupt is matched by errors about files that are damaged, cut short or
	// not of this format. They are a [*CorruptError].
	ErrCorrupt = errkind.New(errkind.DataLossError, "checkpoint: corrupt")
	// ErrNone is matched where a directory holds no checkpoint, or not the one
	// that was asked for.
	ErrNone = errkind.New(errkind.NotFoundError, "checkpoint: none")
	// ErrStep is matched where a step cannot be saved because the directory has
	// it, or a later one.
	ErrStep = errkind.New(errkind.ValueError, "checkpoint: step not after the last")
	// ErrBusy is matched where another process writes to the directory.
	ErrBusy = errkind.New(errkind.FailedPreconditionError, "checkpoint: directory in use")
	// ErrClosed is matched by the errors of a closed checkpoint.
	ErrClosed = errkind.New(errkind.RuntimeError, "checkpoint: closed")
)

// CorruptError says which file is damaged and how it shows. It matches
// [ErrCorrupt].
type CorruptError struct {
	// File is the path of the damaged file.
	File string
	// Variable is the variable whose bytes are damaged, if it is known.
	Variable string
	Reason   string
	// Err is the cause, if there is one.
	Err error
}

func (e *CorruptError) Error() string {
	text := ErrCorrupt.Error() + ": " + e.File + ": "
	if e.Variable != "" {
		text += fmt.Sprintf("variable %q: ", e.Variable)
	}
	text += e.Reason
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Kind is DataLossError.
func (*CorruptError) Kind() errkind.Kind { return errkind.DataLossError }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// Is makes the error match ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// PathError is that a path is not used: it is a URL, or what is there is a pipe, a
// device, or a link where none is followed.
type PathError = files.Error

// VersionError is a checkpoint that a later version of this program wrote, in a form
// that this one does not read. It is no damage: nothing goes back over it to an earlier
// checkpoint. It matches errors.ErrUnsupported.
type VersionError struct {
	// File is the path of the manifest.
	File string
	// Version is its version, Reads the last one that this program reads.
	Version, Reads int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("checkpoint: %s: its version is %d, this program reads %d: use the program that wrote it, or a later one, or remove the checkpoint", e.File, e.Version, e.Reads)
}

// Kind is NotImplementedError.
func (*VersionError) Kind() errkind.Kind { return errkind.NotImplementedError }

// Is makes the error match errors.ErrUnsupported.
func (e *VersionError) Is(target error) bool { return target == errors.ErrUnsupported }

// OwnerError is that another run saves to the directory: one that is running, or that
// saved there since this one looked last. It matches [ErrBusy]. Give each run a
// directory of its own; where this run is to go on from what the other one saved, open
// the directory anew, or set [Options].TakeOver.
type OwnerError struct {
	// Directory is the directory's path.
	Directory string
	// Host and PID are the other run's process, Since the time of its last save and
	// Step the step that it saved; they are zero if the other run left no word.
	Host  string
	PID   int
	Since time.Time
	Step  int64
	// Running says that the process still runs on this machine. Otherwise it may have
	// ended, or run elsewhere.
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
	return fmt.Sprintf("%v: %s saved step %d to %s%s; give each run a directory of its own, or open the directory again to go on from there (Options.TakeOver takes it from a process that runs)",
		ErrBusy, who, e.Step, e.Directory, when)
}

// Kind is FailedPreconditionError.
func (*OwnerError) Kind() errkind.Kind { return errkind.FailedPreconditionError }

// Is makes the error match ErrBusy.
func (e *OwnerError) Is(target error) bool { return target == ErrBusy }

// VariableError says why a variable cannot be saved or restored.
type VariableError struct {
	// Path is the variable's path.
	Path string
	// Reason says what is wrong, Hint what to do instead.
	Reason, Hint string
	// Err is the cause, if there is one.
	Err error
}

func (e *VariableError) Error() string {
	return errkind.Text(fmt.Sprintf("checkpoint: variable %q", e.Path), e.Reason, e.Err, e.Hint)
}

// Kind is the cause's, otherwise ValueError.
func (e *VariableError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.ValueError) }

// Unwrap returns the cause.
func (e *VariableError) Unwrap() error { return e.Err }

// MismatchError lists the variables that only one side has. Nothing was changed.
type MismatchError struct {
	// Missing are variables to restore that the checkpoint does not have.
	Missing []string
	// Unexpected are variables of the checkpoint that nothing takes.
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
	return "checkpoint: other variables: " + strings.Join(parts, ", ")
}

// Kind is ValueError.
func (*MismatchError) Kind() errkind.Kind { return errkind.ValueError }

// few lists the first names of a list.
func few(names []string) string {
	const most = 5
	text := fmt.Sprintf("%q", names[:min(len(names), most)])
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}
