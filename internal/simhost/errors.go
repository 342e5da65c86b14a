package simhost

import (
	"fmt"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// MissingError is a wait for processes that ended before they came.
type MissingError struct {
	// Op is what was waited for, such as "start-up" or `launch of "train_step"`.
	Op string
	// Here is the process that gave up waiting and Missing are those that had not
	// come, ascending; Names are their names.
	Here    int
	Missing []int
	Names   []string
	// Err is why the wait ended, such as context.DeadlineExceeded.
	Err error
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("simhost: %s: process %d waited in vain for %s: %v", e.Op, e.Here, strings.Join(e.Names, ", "), e.Err)
}

// Kind is UnavailableError.
func (*MissingError) Kind() errkind.Kind { return errkind.UnavailableError }

func (e *MissingError) Unwrap() error { return e.Err }

// MissingProcesses returns Missing.
func (e *MissingError) MissingProcesses() []int { return e.Missing }

// LostError is a process that ended while others were counting on it.
type LostError struct {
	// Op is what the others were doing.
	Op string
	// Process is the one that ended, Name its name, and Launches how many launches
	// over several processes it took part in.
	Process  int
	Name     string
	Launches int
}

func (e *LostError) Error() string {
	return fmt.Sprintf("simhost: %s: %s ended after %d launches", e.Op, e.Name, e.Launches)
}

// Kind is UnavailableError.
func (*LostError) Kind() errkind.Kind { return errkind.UnavailableError }

// Launching is what a process is about to launch.
type Launching struct {
	Process int
	Name    string
	// Program is the name of the program's module and Fingerprint a hash of its
	// text and options.
	Program, Fingerprint string
}

func (l Launching) String() string {
	return fmt.Sprintf("%s launches %q (%s)", l.Name, l.Program, l.Fingerprint)
}

// ProgramError is processes that launch different programs where all launch the
// same one. On a slice they would hang.
type ProgramError struct {
	// Launching has an entry for each process that had arrived, by process.
	Launching []Launching
}

func (e *ProgramError) Error() string {
	texts := make([]string, len(e.Launching))
	for i, l := range e.Launching {
		texts[i] = l.String()
	}
	return "simhost: the processes launch different programs: " + strings.Join(texts, "; ")
}

// Kind is RuntimeError.
func (*ProgramError) Kind() errkind.Kind { return errkind.RuntimeError }
