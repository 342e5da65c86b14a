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

// AheadOfTimeError is the result of the first program with variables and data, such as a training
// step, on a backend that compiles ahead of time. It contains the report of the compilation. It
// matches errors.ErrUnsupported.
type AheadOfTimeError struct {
	// Program is the name of the program, and Topology the name of the slice.
	Program, Topology string
	// Explanation describes how the program is sharded. Its Report contains the memory, the
	// collectives and the cost of the compiled program. The Report is nil if the compilation
	// failed, unless the compiler rejected the program because it needs too much memory.
	Explanation *Explanation
	// PlanSearch is the result of the search that plan= requests, or nil.
	PlanSearch *plan.Result
	// File is the file with the report or the best plan, or empty if none was written.
	File string
	// Err is the error of the compilation, of the search, or of writing the report; nil if there
	// was none.
	Err error
}

// Error returns a line with the outcome, followed by the report.
func (e *AheadOfTimeError) Error() string {
	var b strings.Builder
	if e.PlanSearch != nil {
		what := fmt.Sprintf("gomlx: program %q is planned for %s and not run, as plan= and topology= request", e.Program,
			e.Topology)
		if e.Err != nil {
			what = errkind.Format(fmt.Sprintf("gomlx: planning program %q for %s", e.Program, e.Topology), "", e.Err, "")
		}
		b.WriteString(what + "\n\n")
		_ = e.PlanSearch.WriteText(&b) // a strings.Builder takes everything
		if e.Err == nil {
			fmt.Fprintf(&b, "\nthe best plan is in %[1]s: run with GOMLX_BACKEND=tpustrategy:plan=%[1]s\n", e.File)
		}
		return b.String()
	}
	hasReport := e.Explanation != nil && e.Explanation.Report != nil
	compiled := hasReport && !e.Explanation.Report.Memory.Refused
	switch {
	case !compiled:
		b.WriteString(errkind.Format(fmt.Sprintf("gomlx: compiling program %q for %s", e.Program, e.Topology),
			"it cannot be compiled", e.Err,
			"split more over more devices, or read the compiler's reason"))
	case e.Err != nil:
		b.WriteString(errkind.Format(fmt.Sprintf("gomlx: program %q for %s", e.Program, e.Topology),
			"it is compiled, and the report cannot be written", e.Err, ""))
	default:
		fmt.Fprintf(&b, "gomlx: program %q is compiled for %s and not run, as topology= requests", e.Program, e.Topology)
		if e.File != "" {
			b.WriteString("; the report is in " + e.File)
		}
	}
	if e.Explanation == nil {
		return b.String()
	}
	b.WriteString("\n\n")
	if hasReport {
		_ = e.Explanation.Report.WriteText(&b) // a strings.Builder takes everything
		var more strings.Builder
		e.Explanation.writeUnsharded(&more)
		e.Explanation.writeIdleAxes(&more)
		if more.Len() > 0 {
			b.WriteString("\nsplits\n" + more.String())
		}
	} else {
		_ = e.Explanation.WriteText(&b)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// ExitCode returns the exit code for a program that exits with the report: 0 for success, 4 if a
// device has too little memory, 5 if the compiler's process died, and 1 for other failures. The
// command tpustrategy uses the same codes.
func (e *AheadOfTimeError) ExitCode() int {
	var compiler *pjrt.Error
	var workerErr *worker.Error
	switch {
	case errors.As(e.Err, &compiler) && compiler.Code == pjrt.ResourceExhausted, e.PlanSearch != nil &&
		errkind.KindOf(e.Err) == errkind.ResourceExhaustedError:
		return 4
	case errors.As(e.Err, &workerErr) && workerErr.Reason != worker.NotStarted:
		return 5
	case e.Err != nil:
		return 1
	case e.Explanation != nil && e.Explanation.Report != nil && e.Explanation.Report.Memory.Verdict == report.TooLarge:
		return 4
	}
	return 0
}

// Exit writes e to standard output, or to standard error if e.Err is not nil, and exits the process
// with e.ExitCode. It is meant for Options.OnAheadOfTime: an ordinary GoMLX program would report e
// as a failure with a stack trace. Deferred functions do not run.
func Exit(e *AheadOfTimeError) {
	w := os.Stdout
	if e.Err != nil {
		w = os.Stderr
	}
	_, err := fmt.Fprintln(w, e)
	code := e.ExitCode()
	if code == 0 && err != nil {
		code = 1
	}
	os.Exit(code)
}

// Unwrap returns the cause.
func (e *AheadOfTimeError) Unwrap() error { return e.Err }

// Kind returns the kind of the cause, and NotImplementedError for a program that was compiled.
func (e *AheadOfTimeError) Kind() errkind.Kind {
	return errkind.KindOr(e.Err, errkind.NotImplementedError)
}

// Is reports whether target is errors.ErrUnsupported.
func (e *AheadOfTimeError) Is(target error) bool { return target == errors.ErrUnsupported }
