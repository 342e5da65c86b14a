package watchdog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/strategy/status"
)

// ExitCode is the code with which a process ends that waits for a host which does not go on:
// EX_UNAVAILABLE. All hosts end, and a supervisor starts the job again from its last checkpoint. A
// run that was interrupted and has saved ends with another code.
const ExitCode = 69

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

// StuckError ends the context of a run that does not go on.
type StuckError struct {
	// Here is this host, Step the number of steps that it has taken, Doing what it waits for, and
	// For how long it has.
	Here  int
	Step  int64
	Doing string
	For   time.Duration
	// Findings name the hosts that do not go on, and the causes; the first one stands in the text.
	Findings []status.Finding
	// Goroutines are the stacks of this host's goroutines, the program's own first, bounded.
	Goroutines string
}

// Error names the hosts and the causes.
func (e *StuckError) Error() string {
	all := make([]string, 0, len(e.Findings))
	for _, f := range e.Findings {
		all = append(all, f.String())
	}
	return errkind.Text("watchdog", strings.Join(all, "; "), nil,
		fmt.Sprintf("host %d waited for %v in %s after step %d: end all hosts (code %d) and start again from the last checkpoint",
			e.Here, e.For.Round(100*time.Millisecond), e.Doing, e.Step, ExitCode))
}

// Kind returns UnavailableError.
func (*StuckError) Kind() errkind.Kind { return errkind.UnavailableError }

// ExitCode returns [ExitCode].
func (*StuckError) ExitCode() int { return ExitCode }

// Unwrap returns context.Canceled, so that what ends by it counts as cancelled.
func (*StuckError) Unwrap() error { return context.Canceled }

func (w *Watchdog) stuckError(s state, found []status.Finding) *StuckError {
	found = slices.Clone(found)
	slices.SortStableFunc(found, func(a, b status.Finding) int { // what is sure comes first
		switch {
		case a.Sure == b.Sure:
			return 0
		case a.Sure:
			return -1
		}
		return 1
	})
	return &StuckError{Here: w.opts.Host, Step: s.record.Step, Doing: doing(&s.record), For: s.lasted, Findings: found, Goroutines: goroutines()}
}

func doing(r *status.Record) string {
	if r.Detail == "" {
		return r.Doing
	}
	return fmt.Sprintf("%s %q", r.Doing, r.Detail)
}

// report tells of new findings.
func (w *Watchdog) report(s state, found []status.Finding) {
	r := Report{Findings: found, Host: w.opts.Host, Step: s.record.Step, Doing: doing(&s.record), For: s.lasted}
	if slices.ContainsFunc(found, func(f status.Finding) bool { return f.Cause.Stops() }) {
		r.Goroutines = goroutines()
	}
	for _, f := range found {
		w.opts.Logger.Warn("watchdog: "+f.String(), "cause", string(f.Cause), "here", r.Host, "here_doing", r.Doing,
			"here_for", r.For.Round(100*time.Millisecond), "here_step", r.Step)
	}
	if r.Goroutines != "" {
		w.opts.Logger.Warn("watchdog: goroutines of this host", "here", r.Host, "goroutines", r.Goroutines)
		if w.board != nil {
			go func() { // which may be slow
				ctx, cancel := context.WithTimeout(context.Background(), storeWait)
				defer cancel()
				_ = w.board.PutText(ctx, r.Host, "goroutines", r.Goroutines)
			}()
		}
	}
	if w.opts.OnReport != nil {
		w.opts.OnReport(r)
	}
}
