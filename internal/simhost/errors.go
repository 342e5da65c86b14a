package simhost

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// fault is an error of the caller that has no type of its own.
func fault(op, format string, args ...any) error {
	return &errkind.Fault{Op: "simhost: " + op, Reason: fmt.Sprintf(format, args...), Class: errkind.ValueError}
}

// MissingError reports that a process waited in vain for other processes.
type MissingError struct {
	// Op is what the process waited for, such as "start-up" or `launch of "train_step"`.
	Op string
	// Here is the process that gave up waiting.
	Here int
	// Missing are the processes that had not come, ascending, and Names are their names.
	Missing []int
	Names   []string
	// Err is why the wait ended, such as context.DeadlineExceeded.
	Err error
}

// Error names the processes that had not come, and the cause.
func (e *MissingError) Error() string {
	return errkind.Text("simhost: "+e.Op, fmt.Sprintf("process %d waited in vain for %s", e.Here, strings.Join(e.Names, ", ")), e.Err, "")
}

// Kind returns UnavailableError.
func (*MissingError) Kind() errkind.Kind { return errkind.UnavailableError }

// Unwrap returns the cause.
func (e *MissingError) Unwrap() error { return e.Err }

// MissingProcesses returns Missing.
func (e *MissingError) MissingProcesses() []int { return e.Missing }

// LostError reports that a process ended while other processes counted on it.
type LostError struct {
	// Op is what the other processes were doing.
	Op string
	// Process is the process that ended, and Name its name.
	Process int
	Name    string
	// Launches is how many launches over several processes it took part in.
	Launches int
}

// Error names the process that ended.
func (e *LostError) Error() string {
	return errkind.Text("simhost: "+e.Op, fmt.Sprintf("%s ended after %d launches", e.Name, e.Launches), nil, "")
}

// Kind returns UnavailableError.
func (*LostError) Kind() errkind.Kind { return errkind.UnavailableError }

// Launch says what a process is about to launch.
type Launch struct {
	// Process is the process, and Name its name.
	Process int
	Name    string
	// Program is the name of the program's module and Fingerprint a hash of its text and options.
	Program, Fingerprint string
}

// String returns a text such as `process 1 launches "step" (a1b2)`.
func (l Launch) String() string {
	return fmt.Sprintf("%s launches %q (%s)", l.Name, l.Program, l.Fingerprint)
}

// ProgramError reports that the processes launch different programs where all should launch the
// same program. On a slice they would hang.
type ProgramError struct {
	// Launching has an entry for each process that had arrived, by process.
	Launching []Launch
}

// Error says what each process launches.
func (e *ProgramError) Error() string {
	texts := make([]string, len(e.Launching))
	for i, l := range e.Launching {
		texts[i] = l.String()
	}
	return errkind.Text("simhost", "the processes launch different programs: "+strings.Join(texts, ", "), nil, "")
}

// Kind returns RuntimeError.
func (*ProgramError) Kind() errkind.Kind { return errkind.RuntimeError }
