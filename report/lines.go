package report

import (
	"cmp"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Line is what the operations that come from one line of Go take of one core in a run of the step, those
// of each layer and pass apart. What an operation of several lines takes is shared out: products take
// the time of a fusion, if there are any, and otherwise its operations by the elements that they make.
// One Line without a File has what no line is known of.
type Line struct {
	// File is a Go file by its package's import path, and Line the line that asked for the operations. A
	// gradient has the line of the operation that it is a gradient of, and what a library does of its own,
	// such as an optimizer, the line of what it goes on from, or its own.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
	// Function is the function that the line stands in, and Call what the line calls.
	Function string `json:"function,omitempty"`
	Call     string `json:"call,omitempty"`
	// Layer is the scope of the variables that flowed into the operations, as in [Operation], and Pass is
	// "forward", "backward" or "update".
	Layer string `json:"layer,omitempty"`
	Pass  string `json:"pass,omitempty"`
	// CoreTime is none without a prediction. Its sum over all lines is [Prediction].Seconds.
	CoreTime
	// PeakBytes is the part of [Schedule].Peak that the line's values take: of a variable, those of the
	// line that reads it first.
	PeakBytes int64 `json:"peak_bytes,omitempty"`
	// Collectives are those that move the line's values, most bytes first.
	Collectives []Collective `json:"collectives,omitempty"`
}

// String is the line as "decoder/model.go:65", or "not known".
func (l Line) String() string {
	if l.File == "" {
		return "not known"
	}
	folder := path.Base(path.Dir(l.File))
	return strings.TrimPrefix(path.Join(folder, path.Base(l.File)), "./") + ":" + strconv.Itoa(l.Line)
}

// layerName is a layer as the schedule names it.
func layerName(o *ir.Origin) string { return strings.TrimPrefix(o.Layer, "/") }

// lineTable numbers the lines from 1, in the order in which they are met; 0 is a line that is not known.
type lineTable struct {
	at  map[*ir.Origin]int
	all []Line
}

func newLines() *lineTable { return &lineTable{at: map[*ir.Origin]int{}, all: make([]Line, 1)} }

// number is that of the line of an origin.
func (t *lineTable) number(o *ir.Origin) int {
	if o == nil {
		return 0
	}
	n, known := t.at[o]
	if !known {
		n = len(t.all)
		t.at[o] = n
		t.all = append(t.all, lineAt(o))
	}
	return n
}

// addTimes adds the times of operations that run so often.
func (t *lineTable) addTimes(all []Operation, rounds float64) {
	for _, o := range all {
		if o.Inside != nil {
			t.addTimes(o.Inside, rounds*float64(max(o.Rounds, 1)))
			continue
		}
		for _, p := range o.by.shares() {
			t.all[t.number(p.origin)].CoreTime.add(o.CoreTime, rounds*p.weight)
		}
	}
}

// addCollectives gives lines their collectives.
func (t *lineTable) addCollectives(byLine map[lineKey]*Collective) {
	for key, one := range byLine {
		l := &t.all[t.number(key.origin)]
		l.Collectives = append(l.Collectives, *one)
	}
	for k := range t.all {
		sortCollectives(t.all[k].Collectives)
	}
}

// finish returns the lines that take something, the longest first, and the number of each in what it
// returns, from 1.
func (t *lineTable) finish() (lines []Line, numbers []int) {
	order := make([]int, 0, len(t.all))
	for k, l := range t.all {
		if l.Seconds() > 0 || l.PeakBytes > 0 || len(l.Collectives) > 0 {
			order = append(order, k)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := &t.all[a], &t.all[b]
		return cmp.Or(cmp.Compare(y.Seconds(), x.Seconds()), cmp.Compare(y.PeakBytes, x.PeakBytes), cmp.Compare(x.File, y.File), cmp.Compare(x.Line, y.Line),
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

// addLines gives the report the lines, and the operations and the values of a schedule their numbers;
// none for a program from elsewhere.
func (r *Report) addLines(s *Schedule, m *hloModule, operations []Operation, lines *lineTable) {
	if m.origins == nil {
		lines.mark(operations, nil)
		return
	}
	lines.addTimes(operations, 1)
	lines.addCollectives(m.byLine)
	all, numbers := lines.finish()
	r.Lines = all
	for k := range s.Values {
		s.Values[k].Line = numbers[s.Values[k].Line]
	}
	lines.mark(operations, numbers)
}

// mark gives operations the numbers of their lines, if there are any.
func (t *lineTable) mark(all []Operation, numbers []int) {
	for k := range all {
		o := &all[k]
		if o.Inside == nil && o.by != nil && numbers != nil {
			o.Line = numbers[t.at[most(o.by.shares())]]
		}
		o.by = nil // a report does not hold the program
		t.mark(o.Inside, numbers)
	}
}

// ByLine returns the lines of Go with their layers and passes together, in the order of [Report].Lines:
// the longest first. Layer, Pass and Call are what all have in common.
func (r *Report) ByLine() []Line {
	all := together(r.Lines, func(l Line) string { return l.String() + l.File }, (*Line).add)
	slices.SortStableFunc(all, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Seconds(), a.Seconds()), cmp.Compare(b.PeakBytes, a.PeakBytes))
	})
	return all
}

// add adds what another part of the line takes.
func (l *Line) add(o Line) {
	l.CoreTime.add(o.CoreTime, 1)
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
	l.Collectives = together(slices.Concat(l.Collectives, o.Collectives), Collective.key, (*Collective).join)
	sortCollectives(l.Collectives)
}

// move is a collective with the line that it comes from.
type move struct {
	Line
	Collective
}

// moves are the collectives of lines, those that send most first.
func moves(lines []Line) (all []move) {
	for _, l := range lines {
		for _, c := range l.Collectives {
			all = append(all, move{l, c})
		}
	}
	slices.SortStableFunc(all, func(a, b move) int { return cmp.Compare(b.Moved, a.Moved) })
	return all
}
