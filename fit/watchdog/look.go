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

// Look is the state of a run at one time. It can be encoded as JSON.
type Look struct {
	Place string    `json:"place"`
	Run   string    `json:"run"`
	Time  time.Time `json:"time"`
	// Summary is one line such as "step 400 of 1000, 12.3 steps/s, loss 0.2512, checkpoint 300, 8
	// of 8 hosts".
	Summary string `json:"summary"`
	// Over reports that all hosts have ended.
	Over     bool      `json:"over"`
	Hosts    []Host    `json:"hosts"`
	Findings []Finding `json:"findings"`
	// Remarks are lines with the findings and other observations.
	Remarks []string `json:"remarks,omitempty"`
	// Unreadable is the number of records that cannot be read.
	Unreadable int `json:"unreadable,omitempty"`
	// Known reports that waiting would reveal nothing more: there is no record, or each host has
	// ended or was seen alive.
	Known bool `json:"-"`
}

func (v *View) look(place string, all []Record, unreadable []error, now time.Time) Look {
	if v.began.IsZero() {
		v.began, v.read = now, 0
	}
	v.see(all, now.Sub(v.began), now)
	hosts := v.now()
	l := Look{Place: place, Run: v.run, Time: now, Summary: summary(hosts), Over: len(hosts) > 0, Hosts: append([]Host{}, hosts...),
		Findings: append([]Finding{}, judge(hosts, minSilence)...), Unreadable: len(unreadable), Known: len(hosts) > 0 || len(unreadable) == 0}
	say := func(format string, args ...any) { l.Remarks = append(l.Remarks, line(fmt.Sprintf(format, args...))) }
	for _, f := range l.Findings {
		say("%s", f)
	}
	running, alive := false, false
	for i := range hosts {
		h := &hosts[i]
		runs := h.State != Ended
		l.Over, l.Known = l.Over && !runs, l.Known && (!runs || h.changed)
		if runs && !h.Missing {
			running, alive = true, alive || h.changed || h.Silent < h.limit/2
		}
	}
	if running && !alive {
		say("no record has changed for %v; the last one was written %v ago, by its host's clock: the run is dead, stopped, or cut off",
			(v.read - v.since).Round(100*time.Millisecond), max(now.Sub(newest(all).Time), 0).Round(time.Second))
	}
	for _, r := range all {
		if !v.follows(r) {
			say("%s has a record of another run, %q after step %d: it is left out", title(r.Host, r.Name), r.Run, r.Step)
		}
	}
	for _, err := range unreadable {
		say("%v", err)
	}
	if len(all)+len(unreadable) == 0 {
		say("no host has a record in %s yet: a run writes them with the hook fit.Watch and this Place", place)
	}
	return l
}

// line converts a text to one line, because texts of hosts may contain line breaks.
func line(text string) string { return plain.EscapeLine(strings.Join(strings.Fields(text), " ")) }

// Title returns the run and its summary in one line.
func (l *Look) Title() string {
	if l.Run == "" {
		return line(l.Summary)
	}
	return line("run " + l.Run + ": " + l.Summary)
}

// Text returns the complete state as lines: the title, a table with one line for each host, and the
// remarks. Lines of the table are truncated to width columns; 0 means no limit.
func (l *Look) Text(width int) (lines []string) {
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
		does, lasts, loss, saved := strings.TrimSpace(h.Doing+" "+h.Detail), seconds(h.For), "-", "-"
		if h.State == Ended {
			does, lasts = cmp.Or(h.Error, "-"), "-"
		}
		if h.Loss != nil {
			loss = number(float64(*h.Loss))
		}
		if h.Checkpoint > 0 {
			saved = fmt.Sprint(h.Checkpoint)
		}
		fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i, h.Step, h.word(), cut(does, 40), lasts, number(h.Rate), loss, saved, cut(h.Name, 24))
	}
	_ = t.Flush()
	lines = append(lines, l.Title())
	for row := range strings.Lines(b.String()) {
		lines = append(lines, cut(strings.TrimRight(row, " \n"), cmp.Or(width, math.MaxInt)))
	}
	return append(lines, l.Remarks...)
}

// word returns the state of a host in one or two words.
func (h *Host) word() string {
	switch {
	case h.State == Ended && h.Error != "":
		return "failed"
	case h.State == Ended:
		return "ended"
	case h.gone != "":
		_, word, _ := strings.Cut(h.gone, " ")
		return word
	case !h.signs():
		return "silent " + seconds(h.Silent)
	case slices.ContainsFunc(h.Findings, func(f Finding) bool { return stops(f) && f.Host == h.Record.Host }):
		return "late"
	case h.State == Stuck:
		return "waits"
	}
	return string(h.State)
}

// summary returns the summary of a [Look].
func summary(all []Host) string {
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
		case all[i].signs():
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
		text += ", " + number(rate/float64(alive)) + " steps/s"
	}
	if loss != nil {
		text += ", loss " + number(float64(*loss.Loss))
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
		text += ", " + h.Shares().String()
	}
	return text
}

func number(x float64) string { return fmt.Sprintf("%.4g", x) }

// cut converts a text to one line of at most this number of columns.
func cut(text string, most int) string {
	if r := []rune(plain.EscapeLine(text)); len(r) > most {
		return string(r[:max(most-1, 0)]) + "…"
	}
	return plain.EscapeLine(text)
}
