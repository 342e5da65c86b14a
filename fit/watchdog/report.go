package watchdog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/command"
)

// ExitCode is the code with which a process ends that waits for a host which does not go on:
// 69, EX_UNAVAILABLE. All hosts end, and a supervisor starts the job again from its last checkpoint. A
// run that was interrupted and has saved ends with another code.
const ExitCode = command.Unavailable

// Report says who does not go on, or what else is the matter, and where this host is.
type Report struct {
	// Record is where this host is. Of its findings at least one is new since the report before.
	Record
	// Goroutines are the stacks of this host's goroutines, the program's own first, bounded; empty
	// if the run goes on.
	Goroutines string
}

// StuckError ends the context of a run that does not go on. Of its findings the first stands in the
// text first; what is sure comes before what is not.
type StuckError struct{ Report }

// Error names the hosts and the causes.
func (e *StuckError) Error() string {
	all := make([]string, 0, len(e.Findings))
	for _, f := range e.Findings {
		all = append(all, f.String())
	}
	return errkind.Text("watchdog", strings.Join(all, "; "), nil,
		fmt.Sprintf("host %d waited for %s in %s after step %d: end all hosts (code %d) and start again from the last checkpoint",
			e.Host, seconds(e.For), e.doing(), e.Step, ExitCode))
}

// Kind returns UnavailableError.
func (*StuckError) Kind() errkind.Kind { return errkind.UnavailableError }

// ExitCode returns [ExitCode].
func (*StuckError) ExitCode() int { return ExitCode }

// Unwrap returns context.Canceled, so that what ends by it counts as canceled.
func (*StuckError) Unwrap() error { return context.Canceled }

func (w *Watchdog) stuckError(found []Finding) *StuckError {
	unsure := func(f Finding) bool { return !f.Sure }
	return &StuckError{w.reportOf(append(slices.DeleteFunc(slices.Clone(found), unsure), slices.DeleteFunc(slices.Clone(found), sure)...))}
}

// reportOf is a report of findings about the run as it is.
func (w *Watchdog) reportOf(found []Finding) Report {
	here, _ := w.look()
	here.Findings = found
	r := Report{Record: here}
	if slices.ContainsFunc(found, stops) {
		var b strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
		r.Goroutines = arrange(b.String())
	}
	return r
}

// report tells of new findings, if there are any, in a line for each.
func (w *Watchdog) report(found []Finding) {
	if len(found) == 0 {
		return
	}
	r := w.reportOf(found)
	dump := w.dump(r)
	for _, f := range found {
		w.opts.Logger.Warn("watchdog: "+f.String(), "cause", string(f.Cause), "here", r.Host, "here_doing", r.doing(),
			"here_for", seconds(r.For), "here_step", r.Step, "goroutines", dump)
	}
	if w.opts.OnReport != nil {
		w.opts.OnReport(r)
	}
}

// dump puts this host's goroutines beside its record, or in a temporary file where there are no
// records, and returns the file.
func (w *Watchdog) dump(r Report) string {
	switch {
	case r.Goroutines == "":
		return ""
	case w.board != nil:
		name := fmt.Sprintf(goroutinesFile, r.Host)
		go func() { // which may be slow
			ctx, cancel := context.WithTimeout(context.Background(), storeWait)
			defer cancel()
			_ = w.board.put(ctx, name, []byte(r.Goroutines))
		}()
		return w.board.store.String() + "/" + name
	case !w.opts.Logger.Enabled(context.Background(), slog.LevelWarn):
		return "" // nobody is told of it
	}
	f, err := os.CreateTemp("", "goroutines-*.txt")
	if err != nil {
		return err.Error()
	}
	_, err = f.WriteString(r.Goroutines)
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name())).Error()
	}
	return f.Name()
}

// maxGoroutines bounds a text of goroutines, in bytes.
const maxGoroutines = 64 << 10

// module is the module's path, of the functions of its packages.
const module = "github.com/tpustrategy/tpustrategy/"

// arrange orders the stacks of a profile of goroutines, in which those that are alike are counted,
// and bounds them: that which takes the steps, the program's own, the module's, others, and the
// watchdog's at last.
func arrange(profile string) string {
	parts := []string{module + "fit.Run+", "\tmain.main+", "\tmain.", module, ""}
	rank := func(stack string) int {
		if strings.Contains(stack, module+"fit/watchdog.(*Watchdog).") {
			return len(parts)
		}
		return slices.IndexFunc(parts, func(part string) bool { return strings.Contains(stack, part) })
	}
	_, text, _ := strings.Cut(profile, "\n")
	stacks := strings.Split(strings.TrimSpace(text), "\n\n")
	slices.SortStableFunc(stacks, func(a, b string) int { return rank(a) - rank(b) })
	all := strings.Join(stacks, "\n\n")
	if len(all) > maxGoroutines {
		all = all[:maxGoroutines] + fmt.Sprintf("\n... and %d bytes more", len(all)-maxGoroutines)
	}
	return all
}
