package gomlx

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/tpustrategy/tpustrategy/aot/plan"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
)

// AheadOfTimeError reports that a backend which compiles for devices that are not here has come to the
// first program that needs them, such as a training step. It has what the compiler says of the
// program. It matches errors.ErrUnsupported.
type AheadOfTimeError struct {
	// Program is the program's name, and Topology the slice's.
	Program, Topology string
	// Explanation says how the program is split. Its Report has the memory, the collectives and the
	// cost of the compiled program; it is nil if the program was not compiled, but for one that the compiler refused as too large.
	Explanation *Explanation
	// Plans is what a search for a plan found, which plan= asks for; otherwise nil.
	Plans *plan.Result
	// File is where the report, or the best plan, was written to; empty if to no file.
	File string
	// Err says why the program was not compiled, or the report not written; nil otherwise.
	Err error
}

// Error returns a line that says what has stopped the program, and the report on the lines below it.
func (e *AheadOfTimeError) Error() string {
	var b strings.Builder
	if e.Plans != nil {
		what := fmt.Sprintf("gomlx: program %q is planned for %s and not run, as plan= and topology= ask", e.Program, e.Topology)
		if e.Err != nil {
			what = errkind.Text(fmt.Sprintf("gomlx: planning program %q for %s", e.Program, e.Topology), "", e.Err, "")
		}
		b.WriteString(what + "\n\n")
		_ = e.Plans.WriteText(&b) // a strings.Builder takes everything
		if e.Err == nil {
			fmt.Fprintf(&b, "\nthe best plan is in %[1]s: run with GOMLX_BACKEND=tpustrategy:plan=%[1]s\n", e.File)
		}
		return b.String()
	}
	told := e.Explanation != nil && e.Explanation.Report != nil
	compiled := told && !e.Explanation.Report.Memory.Refused
	switch {
	case !compiled:
		b.WriteString(errkind.Text(fmt.Sprintf("gomlx: compiling program %q for %s", e.Program, e.Topology), "it cannot be compiled", e.Err,
			"split more over more devices, or read the compiler's reason"))
	case e.Err != nil:
		b.WriteString(errkind.Text(fmt.Sprintf("gomlx: program %q for %s", e.Program, e.Topology), "it is compiled, and the report cannot be written", e.Err, ""))
	default:
		fmt.Fprintf(&b, "gomlx: program %q is compiled for %s and not run, as topology= asks", e.Program, e.Topology)
		if e.File != "" {
			b.WriteString("; the report is in " + e.File)
		}
	}
	if e.Explanation == nil {
		return b.String()
	}
	b.WriteString("\n\n")
	if told {
		_ = e.Explanation.Report.WriteText(&b) // a strings.Builder takes everything
		var more strings.Builder
		e.Explanation.wholeText(&more)
		e.Explanation.idleText(&more)
		if more.Len() > 0 {
			b.WriteString("\nsplits\n" + more.String())
		}
	} else {
		_ = e.Explanation.WriteText(&b)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// ExitCode returns the exit code of a program that ends with the report: 0, or 4 if a device has too
// little memory, 5 if the compiler's process has died, and 1 for other failures. The command tpustrategy
// has the same codes.
func (e *AheadOfTimeError) ExitCode() int {
	var compiler *pjrt.Error
	var gone *worker.Error
	switch {
	case errors.As(e.Err, &compiler) && compiler.Code == pjrt.ResourceExhausted, e.Plans != nil && errkind.Of(e.Err) == errkind.ResourceExhaustedError:
		return 4
	case errors.As(e.Err, &gone) && gone.Reason != worker.NotStarted:
		return 5
	case e.Err != nil:
		return 1
	case e.Explanation != nil && e.Explanation.Report != nil && e.Explanation.Report.Memory.Verdict == report.TooLarge:
		return 4
	}
	return 0
}

// Exit ends the process with e.ExitCode, after it has written e to the standard output, or to the
// standard error if the program could not be compiled. It is for Options.Stopped: GoMLX's programs know
// nothing of compiling ahead of time, and would take the report for a fault, with a stack. Deferred calls
// do not run.
func Exit(e *AheadOfTimeError) {
	to := os.Stdout
	if e.Err != nil {
		to = os.Stderr
	}
	_, err := fmt.Fprintln(to, e)
	code := e.ExitCode()
	if code == 0 && err != nil {
		code = 1
	}
	os.Exit(code)
}

// Unwrap returns the cause.
func (e *AheadOfTimeError) Unwrap() error { return e.Err }

// Kind returns the kind of the cause, and NotImplementedError for a program that was compiled.
func (e *AheadOfTimeError) Kind() errkind.Kind { return errkind.Or(e.Err, errkind.NotImplementedError) }

// Is reports whether target is errors.ErrUnsupported.
func (e *AheadOfTimeError) Is(target error) bool { return target == errors.ErrUnsupported }
