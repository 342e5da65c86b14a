package status

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tpustrategy/tpustrategy/internal/plain"
)

// Summary says in one line where a run is, such as "step 400 of 1000, 12.3 steps/s, loss 0.2512,
// checkpoint 300, 8 of 8 hosts".
func Summary(all []Sight) string {
	if len(all) == 0 {
		return "no hosts"
	}
	alive, ended, step, steps := 0, 0, int64(math.MaxInt64), int64(0)
	var rate float64
	var saved int64
	var loss *Number
	lossStep := int64(-1)
	for i := range all {
		r := &all[i].Record
		if all[i].Missing {
			continue
		}
		switch {
		case r.State == Ended:
			ended++
		case all[i].Alive():
			alive++
			rate += float64(r.Rate)
		}
		step, steps, saved = min(step, r.Step), max(steps, r.Steps), max(saved, r.Checkpoint)
		if r.Loss != nil && r.LossStep > lossStep {
			loss, lossStep = r.Loss, r.LossStep
		}
	}
	if step == math.MaxInt64 {
		return fmt.Sprintf("0 of %s", plural(len(all), "host", "hosts"))
	}
	text := fmt.Sprintf("step %d", step)
	if steps > 0 {
		text += fmt.Sprintf(" of %d", steps)
	}
	if alive > 0 {
		text += ", " + number(rate/float64(alive)) + " steps/s"
	}
	if loss != nil {
		text += fmt.Sprintf(", loss %s", number(float64(*loss)))
		if lossStep != step {
			text += fmt.Sprintf(" after step %d", lossStep)
		}
	}
	if saved > 0 {
		text += fmt.Sprintf(", checkpoint %d", saved)
	}
	text += fmt.Sprintf(", %d of %s", alive, plural(len(all), "host", "hosts"))
	if ended > 0 {
		text += fmt.Sprintf(", %d ended", ended)
	}
	if h := all[0].Record.History; h != nil {
		text += ", " + h.Shares().String()
	}
	return text
}

// Table is a line for each host, below a line of titles: its step, rate, loss and checkpoint, what
// it does and for how long, and whether it is alive. A line has at most width columns; 0 is as many
// as it takes.
func Table(all []Sight, width int) []string {
	rows := [][]string{{"host", "step", "state", "does", "for", "steps/s", "loss", "saved", "name"}}
	for i := range all {
		s := &all[i]
		r := &s.Record
		if s.Missing {
			rows = append(rows, []string{strconv.Itoa(i), "-", "missing", "-", "-", "-", "-", "-", "-"})
			continue
		}
		loss, saved, does, lasts := "-", "-", r.Doing, seconds(float64(r.For))
		if r.Loss != nil {
			loss = number(float64(*r.Loss))
		}
		if r.Checkpoint > 0 {
			saved = strconv.FormatInt(r.Checkpoint, 10)
		}
		if r.Detail != "" {
			does += " " + r.Detail
		}
		if r.State == Ended {
			does, lasts = "-", "-"
			if r.Error != "" {
				does = r.Error
			}
		}
		rows = append(rows, []string{strconv.Itoa(i), strconv.FormatInt(r.Step, 10), s.state(), plain.Line(does), lasts, number(float64(r.Rate)), loss, saved, plain.Line(r.Name)})
	}
	const state, does, name = 2, 3, 8
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		row[does], row[name] = cut(row[does], 40), cut(row[name], 24)
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(rows))
	for n, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if words := i == state || i == does || i == name; words {
				cell += space
			} else {
				cell = space + cell
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(cell)
		}
		lines[n] = strings.TrimRight(b.String(), " ")
		if width > 0 {
			lines[n] = cut(lines[n], width)
		}
	}
	return lines
}

// state says in a word or two how a host is.
func (s *Sight) state() string {
	r := &s.Record
	switch {
	case r.State == Ended && r.Error != "":
		return "failed"
	case r.State == Ended:
		return "ended"
	case s.Process != "":
		return strings.TrimPrefix(strings.TrimPrefix(s.Process, "is "), "has ")
	case !s.Alive():
		return "silent " + seconds(s.Silent.Seconds())
	}
	if slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Cause.Stops() && f.Host == r.Host }) {
		return "late"
	}
	if r.State == Stuck {
		return "waits"
	}
	return string(r.State)
}

// Age is how long ago the last record of any host was written, by the hosts' clocks.
func Age(all []Record, now time.Time) time.Duration {
	var newest time.Time
	for _, r := range all {
		if r.Time.After(newest) {
			newest = r.Time
		}
	}
	return max(now.Sub(newest), 0)
}

func number(x float64) string {
	if x != 0 && math.Abs(x) < 0.01 || math.Abs(x) >= 1e6 {
		return strconv.FormatFloat(x, 'g', 3, 64)
	}
	return strconv.FormatFloat(x, 'g', 4, 64)
}

func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:max(most-1, 0)]) + "…"
}
