package simhost

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// fault returns an error of kind ValueError.
func fault(op, format string, args ...any) error {
	return &errkind.Fault{Op: "simhost: " + op, Reason: fmt.Sprintf(format, args...), Class: errkind.ValueError}
}

// MissingError reports that a process waited for other processes until its timeout.
type MissingError struct {
	// Op is the operation that waited, such as "start-up" or `launch of "train_step"`.
	Op string
	// Here is a process that waited. All processes that waited receive the same error.
	Here int
	// Missing are the processes that did not arrive, ascending, and Names are their names.
	Missing []int
	Names   []string
	// Err is the reason why the wait ended, such as context.DeadlineExceeded.
	Err error
}

// Error returns a message with the names of the missing processes and the cause.
func (e *MissingError) Error() string {
	return errkind.Format("simhost: "+e.Op, "timed out waiting for "+strings.Join(e.Names, ", "), e.Err, "")
}

// Kind returns UnavailableError.
func (*MissingError) Kind() errkind.Kind { return errkind.UnavailableError }

// Unwrap returns Err.
func (e *MissingError) Unwrap() error { return e.Err }

// MissingProcesses returns the numbers of the processes that were still missing at the timeout.
func (e *MissingError) MissingProcesses() []int { return e.Missing }

// LostError reports that a process ended while other processes waited for it.
type LostError struct {
	// Op is the operation of the other processes.
	Op string
	// Process is the process that ended, and Name its name.
	Process int
	Name    string
	// Launches is the number of launches over several processes in which the process took part.
	Launches int
}

// Error returns a message with the name of the process and its number of launches.
func (e *LostError) Error() string {
	return errkind.Format("simhost: "+e.Op, fmt.Sprintf("%s ended after %d launches", e.Name, e.Launches), nil, "")
}

// Kind returns UnavailableError.
func (*LostError) Kind() errkind.Kind { return errkind.UnavailableError }

// Launch describes a program that a process is about to launch.
type Launch struct {
	// Process is the process, and Name its name.
	Process int
	Name    string
	// Program is the name of the program's module, and Fingerprint is a hash of its text and options.
	Program, Fingerprint string
}

// String returns a description such as `process 1 launches "step" (a1b2)`.
func (l Launch) String() string {
	return fmt.Sprintf("%s launches %q (%s)", l.Name, l.Program, l.Fingerprint)
}

// ProgramError reports that processes launch different programs although they must launch the same
// program. On a real slice, the processes would hang.
type ProgramError struct {
	// Launching lists the waiting processes and their programs, ordered by process.
	Launching []Launch
}

// Error returns a message with the program of each process.
func (e *ProgramError) Error() string {
	texts := make([]string, len(e.Launching))
	for i, l := range e.Launching {
		texts[i] = l.String()
	}
	return errkind.Format("simhost", "the processes launch different programs: "+strings.Join(texts, ", "), nil, "")
}

// Kind returns RuntimeError.
func (*ProgramError) Kind() errkind.Kind { return errkind.RuntimeError }
