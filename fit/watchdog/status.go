package watchdog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/plain"
)

// RunStatus is the state of a run at one time. It can be encoded as JSON.
type RunStatus struct {
	Dir  string    `json:"place"`
	Run  string    `json:"run"`
	Time time.Time `json:"time"`
	// Summary is one line such as "step 400 of 1000, 12.3 steps/s, loss 0.2512, checkpoint 300, 8
	// of 8 hosts".
	Summary string `json:"summary"`
	// Ended reports that all hosts have ended.
	Ended    bool      `json:"over"`
	Hosts    []Host    `json:"hosts"`
	Findings []Finding `json:"findings"`
	// Remarks are lines with the findings and other observations.
	Remarks []string `json:"remarks,omitempty"`
	// Unreadable is the number of records that cannot be read.
	Unreadable int `json:"unreadable,omitempty"`
	// Settled reports that waiting would reveal nothing more: there are no records, or each host
	// has ended or was seen to update its record.
	Settled bool `json:"-"`
}

func (v *Monitor) newStatus(dir string, records []Record, unreadable []error, now time.Time) RunStatus {
	if v.startTime.IsZero() {
		v.startTime, v.lastRead = now, 0
	}
	v.update(records, now.Sub(v.startTime), now)
	hosts := v.currentHosts()
	l := RunStatus{Dir: dir, Run: v.run, Time: now, Summary: formatSummary(hosts), Ended: len(hosts) > 0,
		Hosts:    append([]Host{}, hosts...),
		Findings: append([]Finding{}, diagnose(hosts, minSilence)...), Unreadable: len(unreadable), Settled: len(hosts) > 0 ||
			len(unreadable) == 0}
	addRemark := func(format string, args ...any) {
		l.Remarks = append(l.Remarks, singleLine(fmt.Sprintf(format, args...)))
	}
	for _, f := range l.Findings {
		addRemark("%s", f)
	}
	running, alive := false, false
	for i := range hosts {
		h := &hosts[i]
		runs := h.State != Ended
		l.Ended, l.Settled = l.Ended && !runs, l.Settled && (!runs || h.hasChanged)
		if runs && !h.Missing {
			running, alive = true, alive || h.hasChanged || h.Silent < h.silenceLimit/2
		}
	}
	if running && !alive {
		addRemark("no record has changed for %v; the last one was written %v ago, by its host's clock: the run is dead, "+
			"stopped, or cut off",
			(v.lastRead - v.runSeen).Round(100*time.Millisecond), max(now.Sub(newestRecord(records).Time), 0).Round(time.Second))
	}
	for _, r := range records {
		if !v.isOfRun(r) {
			addRemark("%s has a record of another run, %q after step %d: it is left out", hostTitle(r.Host, r.Name), r.Run,
				r.Step)
		}
	}
	for _, err := range unreadable {
		addRemark("%v", err)
	}
	if len(records)+len(unreadable) == 0 {
		addRemark("no host has a record in %s yet: a run writes them with the hook fit.Watch and this Dir", dir)
	}
	return l
}

// singleLine replaces the line breaks in a text that was received from a host.
func singleLine(text string) string { return plain.EscapeLine(strings.Join(strings.Fields(text), " ")) }

// Title returns the run and its summary in one line.
func (l *RunStatus) Title() string {
	if l.Run == "" {
		return singleLine(l.Summary)
	}
	return singleLine("run " + l.Run + ": " + l.Summary)
}

// Lines formats the status as lines: the title, a table with one line for each host, and the
// remarks. Lines of the table are truncated to width columns; 0 means no limit.
func (l *RunStatus) Lines(width int) (lines []string) {
	if len(l.Hosts) == 0 {
		return l.Remarks
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "host\tstep\tstate\tdoes\tfor\tsteps/s\tloss\tsaved\tname")
	for i := range l.Hosts {
		h := &l.Hosts[i]
		if h.Missing {
			fmt.Fprintf(t, "%d\t-\tmissing%s\n", i, strings.Repeat("\t-", 6))
			continue
		}
		does, lasts, loss, saved := strings.TrimSpace(h.Activity+" "+h.ActivityName), formatSeconds(h.Duration), "-", "-"
		if h.State == Ended {
			does, lasts = cmp.Or(h.Error, "-"), "-"
		}
		if h.Loss != nil {
			loss = formatNumber(float64(*h.Loss))
		}
		if h.Checkpoint > 0 {
			saved = fmt.Sprint(h.Checkpoint)
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i, h.Step, h.stateText(), truncateLine(does, 40), lasts,
			formatNumber(h.Rate), loss, saved, truncateLine(h.Name, 24))
	}
	_ = t.Flush()
	lines = append(lines, l.Title())
	for row := range strings.Lines(b.String()) {
		lines = append(lines, truncateLine(strings.TrimRight(row, " \n"), cmp.Or(width, math.MaxInt)))
	}
	return append(lines, l.Remarks...)
}

func (h *Host) stateText() string {
	switch {
	case h.State == Ended && h.Error != "":
		return "failed"
	case h.State == Ended:
		return "ended"
	case h.processState != "":
		_, word, _ := strings.Cut(h.processState, " ")
		return word
	case !h.isResponsive():
		return "silent " + formatSeconds(h.Silent)
	case slices.ContainsFunc(h.Findings, func(f Finding) bool { return isFatal(f) && f.Host == h.Record.Host }):
		return "late"
	case h.State == Stuck:
		return "waits"
	}
	return string(h.State)
}

func formatSummary(all []Host) string {
	var rate float64
	var loss *Record
	var steps, saved int64
	alive, ended, step := 0, 0, int64(math.MaxInt64)
	for i := range all {
		r := &all[i].Record
		switch {
		case all[i].Missing:
			continue
		case r.State == Ended:
			ended++
		case all[i].isResponsive():
			alive++
			rate += r.Rate
		}
		step, steps, saved = min(step, r.Step), max(steps, r.Steps), max(saved, r.Checkpoint)
		if r.Loss != nil && (loss == nil || r.LossStep > loss.LossStep) {
			loss = r
		}
	}
	hosts := plural(len(all), "host", "hosts")
	if step == math.MaxInt64 {
		return "0 of " + hosts
	}
	text := fmt.Sprintf("step %d", step)
	if steps > 0 {
		text += fmt.Sprintf(" of %d", steps)
	}
	if alive > 0 {
		text += ", " + formatNumber(rate/float64(alive)) + " steps/s"
	}
	if loss != nil {
		text += ", loss " + formatNumber(float64(*loss.Loss))
		if loss.LossStep != step {
			text += fmt.Sprintf(" after step %d", loss.LossStep)
		}
	}
	if saved > 0 {
		text += fmt.Sprintf(", checkpoint %d", saved)
	}
	text += fmt.Sprintf(", %d of %s", alive, hosts)
	if ended > 0 {
		text += fmt.Sprintf(", %d ended", ended)
	}
	if h := all[0].Record.History; h != nil {
		text += ", " + h.Breakdown().String()
	}
	return text
}

func formatNumber(x float64) string { return fmt.Sprintf("%.4g", x) }

// truncateLine converts a text to one line of at most limit columns.
func truncateLine(text string, limit int) string {
	if r := []rune(plain.EscapeLine(text)); len(r) > limit {
		return string(r[:max(limit-1, 0)]) + "…"
	}
	return plain.EscapeLine(text)
}
