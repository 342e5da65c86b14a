package report

import (
	"cmp"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/hlo"
	"github.com/tpustrategy/tpustrategy/report/memory"
)

// Line contains the cost of one line of Go in a run of the step on one core. Each layer and each
// pass of a line has its own entry. The cost of an operation that comes from several lines is
// divided among them. The time of a fusion belongs to its matrix products and convolutions if there
// are any, and is otherwise divided by the number of result elements. The entry without a File
// contains the cost for which no line is known.
type Line struct {
	memory.SourceLine
	// CoreTime is zero without a prediction. Its sum over all lines is [cost.Prediction].Seconds.
	cost.CoreTime
	// PeakBytes is the size of the line's values at [Schedule].Peak. A variable counts for the line
	// that reads it first.
	PeakBytes int64 `json:"peak_bytes,omitempty"`
	// Collectives are the collectives of the line's values, the most bytes first.
	Collectives []Collective `json:"collectives,omitempty"`
}

// lineTable assigns numbers to lines of Go, starting with 1, in the order of first use. Number 0 is
// used for an unknown line.
type lineTable struct {
	at  map[*ir.Origin]int
	all []Line
}

func newLines() *lineTable { return &lineTable{at: map[*ir.Origin]int{}, all: make([]Line, 1)} }

func (t *lineTable) number(o *ir.Origin) int {
	if o == nil {
		return 0
	}
	n, known := t.at[o]
	if !known {
		n = len(t.all)
		t.at[o] = n
		t.all = append(t.all, Line{SourceLine: *memory.NewSourceLine(o)})
	}
	return n
}

func (t *lineTable) addTimes(all []cost.Operation, n float64) {
	for _, o := range all {
		if o.Inside != nil {
			t.addTimes(o.Inside, n*float64(max(o.Iterations, 1)))
			continue
		}
		for _, p := range o.Instruction.Parts {
			t.all[t.number(p.Origin)].CoreTime.Add(o.CoreTime, n*p.Weight)
		}
	}
}

func (t *lineTable) addCollectives(byLine map[lineKey]*Collective) {
	for key, one := range byLine {
		l := &t.all[t.number(key.origin)]
		l.Collectives = append(l.Collectives, *one)
	}
	for k := range t.all {
		sortCollectives(t.all[k].Collectives)
	}
}

// finish returns the lines that have a cost, the longest time first. It also returns, for each
// number in the table, the new number of the line in the result, starting with 1.
func (t *lineTable) finish() (lines []Line, numbers []int) {
	order := make([]int, 0, len(t.all))
	for k, l := range t.all {
		if l.Seconds() > 0 || l.PeakBytes > 0 || len(l.Collectives) > 0 {
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &t.all[a], &t.all[b]
		return cmp.Or(cmp.Compare(y.Seconds(), x.Seconds()), cmp.Compare(y.PeakBytes, x.PeakBytes),
			cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line),
			cmp.Compare(x.Layer, y.Layer), cmp.Compare(x.Pass, y.Pass), cmp.Compare(x.Call, y.Call))
	})
	numbers = make([]int, len(t.all))
	for n, k := range order {
		lines = append(lines, t.all[k])
		if k > 0 {
			numbers[k] = n + 1
		}
	}
	return lines, numbers
}

// setLines sets the line numbers of operations. If an operation comes from several lines, the line
// with the largest part applies.
func (t *lineTable) setLines(all []cost.Operation, numbers []int) {
	for k := range all {
		o := &all[k]
		if o.Inside == nil && len(o.Instruction.Parts) > 0 {
			largest := slices.MaxFunc(o.Instruction.Parts, func(a, b hlo.Part) int { return cmp.Compare(a.Weight, b.Weight) })
			o.Line = numbers[t.at[largest.Origin]]
		}
		t.setLines(o.Inside, numbers)
	}
}

// sumLines merges the entries of each line of Go. It returns the lines with the longest time first.
// Layer, Pass and Call are empty unless they are equal in all entries of the line.
func (r *Report) sumLines() []Line {
	all := groupBy(r.Lines, func(l Line) string { return l.String() + l.File }, (*Line).add)
	slices.SortStableFunc(all, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Seconds(), a.Seconds()), cmp.Compare(b.PeakBytes, a.PeakBytes))
	})
	return all
}

func (l *Line) add(o Line) {
	l.CoreTime.Add(o.CoreTime, 1)
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
	l.Collectives = groupBy(slices.Concat(l.Collectives, o.Collectives), Collective.key, (*Collective).join)
	sortCollectives(l.Collectives)
}

type lineCollective struct {
	Line
	Collective
}

// collectivesOf returns all collectives of lines, in descending order of the bytes sent.
func collectivesOf(lines []Line) (all []lineCollective) {
	for _, l := range lines {
		for _, c := range l.Collectives {
			all = append(all, lineCollective{l, c})
		}
	}
	slices.SortStableFunc(all, func(a, b lineCollective) int { return cmp.Compare(b.Moved, a.Moved) })
	return all
}
