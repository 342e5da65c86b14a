package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// What bounds the lines and the collectives of the text form; JSON has all.
const textLines, textMoved = 12, 12

// ByLine returns the lines of Go with their layers and passes together, in the order of [Report].Lines:
// the longest first. Layer, Pass and Call are what all have in common.
func (r *Report) ByLine() []Line {
	at := map[string]int{}
	var all []Line
	for _, l := range r.Lines {
		n, known := at[l.String()+l.File]
		if !known {
			at[l.String()+l.File] = len(all)
			l.Collectives = slices.Clone(l.Collectives)
			all = append(all, l)
			continue
		}
		all[n].add(l)
	}
	slices.SortStableFunc(all, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Seconds(), a.Seconds()), cmp.Compare(b.PeakBytes, a.PeakBytes))
	})
	return all
}

// add adds what another part of the line takes.
func (l *Line) add(o Line) {
	l.Products, l.Memory = bounded(l.Products+o.Products), bounded(l.Memory+o.Memory)
	l.Interconnect, l.Network = bounded(l.Interconnect+o.Interconnect), bounded(l.Network+o.Network)
	l.PeakBytes = sum64(l.PeakBytes, o.PeakBytes)
	if l.Layer != o.Layer {
		l.Layer = ""
	}
	if l.Pass != o.Pass {
		l.Pass = ""
	}
	if l.Call != o.Call {
		l.Call = ""
	}
next:
	for _, c := range o.Collectives {
		for k := range l.Collectives {
			if one := &l.Collectives[k]; one.Kind == c.Kind && one.Axis == c.Axis && one.GroupSize == c.GroupSize {
				one.add(c.Count, 0, 0, c.InLoop)
				one.Bytes, one.Moved = sum64(one.Bytes, c.Bytes), sum64(one.Moved, c.Moved)
				continue next
			}
		}
		l.Collectives = append(l.Collectives, c)
	}
	sortCollectives(l.Collectives)
}

// linesText writes which lines take the time and the memory, and which move what between cores.
func (r *Report) linesText(b *strings.Builder) {
	all := r.ByLine()
	if len(all) == 0 {
		return
	}
	b.WriteString("\nby line of Go\n")
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	if r.Predicted != nil {
		fmt.Fprintln(t, "  line\tin\ttime\twaits\tat the peak")
	} else {
		fmt.Fprintln(t, "  line\tin\tat the peak")
	}
	for _, l := range all[:min(len(all), textLines)] {
		fmt.Fprintf(t, "  %s\t%s\t", l, l.Function)
		if r.Predicted != nil {
			fmt.Fprintf(t, "%s\t%s\t", Seconds(l.Seconds()), orNone(l.Interconnect+l.Network))
		}
		fmt.Fprintln(t, Bytes(l.PeakBytes))
	}
	// A strings.Builder takes everything.
	_ = t.Flush()
	if n := len(all) - textLines; n > 0 {
		fmt.Fprintf(b, "  and %d more\n", n)
	}
	r.movedText(b)
}

func orNone(seconds float64) string {
	if seconds > 0 {
		return Seconds(seconds)
	}
	return "-"
}

// movedText writes where the collectives come from.
func (r *Report) movedText(b *strings.Builder) {
	type row struct {
		Line
		Collective
	}
	var rows []row
	for _, l := range r.Lines {
		for _, c := range l.Collectives {
			rows = append(rows, row{l, c})
		}
	}
	if len(rows) == 0 {
		return
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(b.Moved, a.Moved) })
	b.WriteString("\ncollectives by line of Go\n")
	t := tabwriter.NewWriter(b, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "  line\tpass\tlayer\tkind\taxis\tcount\toperands")
	for _, x := range rows[:min(len(rows), textMoved)] {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%d\t%s\n", x.Line, x.Pass, cmp.Or(x.Layer, "-"), x.Kind, x.Axis, x.Count, Bytes(x.Bytes))
	}
	_ = t.Flush()
	if n := len(rows) - textMoved; n > 0 {
		fmt.Fprintf(b, "  and %d more\n", n)
	}
}
