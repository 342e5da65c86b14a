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

// ExitCode is the exit code of a process that waited for a host which makes no progress: 69,
// EX_UNAVAILABLE. All hosts end with this code, and the supervisor must restart the job from its
// last checkpoint.
const ExitCode = command.Unavailable

// Report describes new problems that a host has detected, and the state of that host.
type Report struct {
	// Record is the state of the reporting host. At least one of its findings is new since the
	// previous report.
	Record
	// Goroutines contains the stacks of this host's goroutines, starting with the program's own
	// goroutines. It is truncated, and empty if the run can continue.
	Goroutines string
}

// StuckError is the error of a run that cannot continue. In Findings, the certain findings are
// first.
type StuckError struct{ Report }

func (e *StuckError) Error() string {
	all := make([]string, 0, len(e.Findings))
	for _, f := range e.Findings {
		all = append(all, f.String())
	}
	return errkind.Format("watchdog", strings.Join(all, "; "), nil,
		fmt.Sprintf(
			"host %d waited for %s in %s after step %d: end all hosts (code %d) and start again from the last checkpoint",
			e.Host, formatSeconds(e.Duration), e.activityText(), e.Step, ExitCode))
}

func (*StuckError) Kind() errkind.Kind { return errkind.UnavailableError }

func (*StuckError) ExitCode() int { return ExitCode }

// Unwrap returns context.Canceled, so that operations that end with this error count as canceled.
func (*StuckError) Unwrap() error { return context.Canceled }

func (w *Watchdog) stuckError(findings []Finding) *StuckError {
	unsure := func(f Finding) bool { return !f.Certain }
	return &StuckError{w.newReport(append(slices.DeleteFunc(slices.Clone(findings), unsure),
		slices.DeleteFunc(slices.Clone(findings), isCertain)...))}
}

func (w *Watchdog) newReport(findings []Finding) Report {
	record, _ := w.currentRecord()
	record.Findings = findings
	r := Report{Record: record}
	if slices.ContainsFunc(findings, isFatal) {
		var b strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
		r.Goroutines = sortStacks(b.String())
	}
	return r
}

// logFindings reports new findings to the logger and to OnReport.
func (w *Watchdog) logFindings(findings []Finding) {
	if len(findings) == 0 {
		return
	}
	r := w.newReport(findings)
	dump := w.writeGoroutines(r)
	for _, f := range findings {
		w.opts.Logger.Warn("watchdog: "+f.String(), "cause", string(f.Cause), "here", r.Host, "here_doing", r.activityText(),
			"here_for", formatSeconds(r.Duration), "here_step", r.Step, "goroutines", dump)
	}
	if w.opts.OnReport != nil {
		w.opts.OnReport(r)
	}
}

// writeGoroutines writes the stacks of the goroutines next to the host's record, or to a temporary
// file if there is no record store. It returns the name of the file.
func (w *Watchdog) writeGoroutines(r Report) string {
	switch {
	case r.Goroutines == "":
		return ""
	case w.records != nil:
		name := fmt.Sprintf(goroutinesFile, r.Host)
		go func() { // the store may be slow
			ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
			defer cancel()
			_ = w.records.writeObject(ctx, name, []byte(r.Goroutines))
		}()
		return w.records.store.String() + "/" + name
	case !w.opts.Logger.Enabled(context.Background(), slog.LevelWarn):
		return "" // the file name would not be logged
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

// maxGoroutines is the maximum size of Report.Goroutines in bytes.
const maxGoroutines = 64 << 10

// modulePath is the prefix of the module's package paths.
const modulePath = "github.com/tpustrategy/tpustrategy/"

// sortStacks sorts the stacks of a goroutine profile and truncates the result. The goroutine of
// fit.Run is first, followed by goroutines of package main, of this module, others, and the
// watchdog.
func sortStacks(profile string) string {
	prefixes := []string{modulePath + "fit.Run+", "\tmain.main+", "\tmain.", modulePath, ""}
	rank := func(stack string) int {
		if strings.Contains(stack, modulePath+"fit/watchdog.(*Watchdog).") {
			return len(prefixes)
		}
		return slices.IndexFunc(prefixes, func(part string) bool { return strings.Contains(stack, part) })
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
