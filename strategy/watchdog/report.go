package watchdog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/strategy/status"
)

// ExitCode is the code with which a process ends that waits for a host which does not go on:
// 69, EX_UNAVAILABLE. All hosts end, and a supervisor starts the job again from its last checkpoint. A
// run that was interrupted and has saved ends with another code.
const ExitCode = command.Unavailable

// Report says who does not go on, or what else is the matter, and where this host is.
type Report struct {
	// Findings name hosts. At least one is new since the report before.
	Findings []status.Finding
	// Host is this host, Step the number of its steps, Doing what it does, with its name, and For
	// how long it has.
	Host  int
	Step  int64
	Doing string
	For   time.Duration
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
		fmt.Sprintf("host %d waited for %v in %s after step %d: end all hosts (code %d) and start again from the last checkpoint",
			e.Host, e.For.Round(100*time.Millisecond), e.Doing, e.Step, ExitCode))
}

// Kind returns UnavailableError.
func (*StuckError) Kind() errkind.Kind { return errkind.UnavailableError }

// ExitCode returns [ExitCode].
func (*StuckError) ExitCode() int { return ExitCode }

// Unwrap returns context.Canceled, so that what ends by it counts as cancelled.
func (*StuckError) Unwrap() error { return context.Canceled }

// reportOf is a report of findings about the run as it is.
func (w *Watchdog) reportOf(s state, found []status.Finding) Report {
	r := Report{Findings: found, Host: w.opts.Host, Step: s.record.Step, Doing: s.record.Doing, For: s.lasted}
	if s.record.Detail != "" {
		r.Doing = fmt.Sprintf("%s %q", r.Doing, s.record.Detail)
	}
	if slices.ContainsFunc(found, stops) {
		r.Goroutines = goroutines()
	}
	return r
}

func (w *Watchdog) stuckError(s state, found []status.Finding) *StuckError {
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(a, b status.Finding) int {
		if a.Sure == b.Sure {
			return 0
		} else if a.Sure {
			return -1
		}
		return 1
	})
	return &StuckError{w.reportOf(s, found)}
}

// report tells of new findings, if there are any, in a line for each.
func (w *Watchdog) report(s state, found []status.Finding) {
	if len(found) == 0 {
		return
	}
	r := w.reportOf(s, found)
	dump := w.dump(r)
	for _, f := range found {
		w.opts.Logger.Warn("watchdog: "+f.String(), "cause", string(f.Cause), "here", r.Host, "here_doing", r.Doing,
			"here_for", r.For.Round(100*time.Millisecond), "here_step", r.Step, "goroutines", dump)
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
		go func() { // which may be slow
			ctx, cancel := context.WithTimeout(context.Background(), storeWait)
			defer cancel()
			_ = w.board.PutText(ctx, r.Host, "goroutines", r.Goroutines)
		}()
		return w.board.TextName(r.Host, "goroutines")
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
