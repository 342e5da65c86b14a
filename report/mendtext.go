package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// What bounds the mends of the text form and of the page, and the collectives of each; JSON has all.
const shownMends, shownRemoved = 8, 4

// text writes the mends with what a step takes with each, and what each takes away.
func (m *Mends) text(b *strings.Builder) {
	if m == nil {
		return
	}
	fmt.Fprintf(b, "\nother annotations, each compiled: %s\n", m.Summary())
	if len(m.All) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "  annotation\tfrom\tto\tsends\tstep\tat the peak")
	row := func(of, from, to string, f MendFigures) {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\n", of, from, to, Bytes(f.Sent), orNone(f.Seconds), Bytes(f.Peak))
	}
	row("as it is", "-", "-", m.Now)
	shown := m.All[:min(len(m.All), shownMends)]
	for _, one := range shown {
		row(one.Of(), one.From, one.To, one.After)
	}
	// A strings.Builder takes everything.
	_ = t.Flush()
	if n := len(m.All) - len(shown); n > 0 {
		fmt.Fprintf(b, "  and %d more\n", n)
	}
	b.WriteString("\nwhat they take away, and what they add\n")
	fmt.Fprintln(t, "  annotation\t\tkind\taxis\tsent\tline\tpass\tlayer")
	for _, one := range shown {
		moves(t, one.Of(), "-", one.Removes)
		moves(t, one.Of(), "+", one.Adds)
	}
	_ = t.Flush()
}

// moves writes collectives that an annotation takes away or adds.
func moves(t *tabwriter.Writer, of, sign string, lines []Line) {
	for _, l := range lines[:min(len(lines), shownRemoved)] {
		for _, c := range l.Collectives {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", of, sign, c.Kind, c.Axis, Bytes(c.Moved), l, l.Pass, cmp.Or(l.Layer, "-"))
		}
	}
	if n := len(lines) - shownRemoved; n > 0 {
		fmt.Fprintf(t, "  %s\t%s\tand %d more\t\t\t\t\t\n", of, sign, n)
	}
}

// Summary says how many annotations were, and what came of it.
func (m *Mends) Summary() string {
	text := fmt.Sprintf("%d tried", m.Tried)
	if m.Refused > 0 {
		text += fmt.Sprintf(", %d of them refused by the compiler", m.Refused)
	}
	if m.Left > 0 {
		text += fmt.Sprintf(", %d left", m.Left)
	}
	if len(m.All) == 0 {
		text += "; none takes a collective over the logical devices away and is better"
	}
	return text
}

// check refuses figures below 0 in a report that is read.
func (m *Mends) check() error {
	if m == nil {
		return nil
	}
	least := float64(min(m.Now.Sent, m.Now.Peak, int64(m.Tried), int64(m.Refused), int64(m.Left)))
	for _, one := range m.All {
		least = min(least, float64(one.Count), float64(one.After.Sent), float64(one.After.Peak), one.After.Seconds)
		for _, l := range slices.Concat(one.Removes, one.Adds) {
			for _, c := range l.Collectives {
				least = min(least, float64(c.Moved))
			}
		}
	}
	if least < 0 || m.Now.Seconds < 0 {
		return noReport(nil, "a figure of its mends is below 0")
	}
	return nil
}
