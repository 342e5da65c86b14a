package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/memory"
)

// Schedule is one run of the step on one core, in the compiler's order of operations: the execution
// time of each operation, if times are predicted, and the main memory in use. The memory is derived
// from the program: each value is live from the operation that defines it to the last operation
// that reads it, with the padding of its layout. It is not the compiler's buffer assignment, whose
// figures are in [Memory].
type Schedule struct {
	// Operations are the operations of the step, and of the loops and branches inside. If there are
	// very many, adjacent short operations are joined.
	Operations []cost.Operation `json:"operations"`
	// Values are the largest values in main memory, the largest first. Rest is the size of the
	// other values at the peak.
	Values []Value `json:"values"`
	Rest   int64   `json:"rest_bytes,omitempty"`
	// Peak is the maximum memory in use, during the operation with the number PeakAt. It does not
	// include the code.
	Peak   int64 `json:"peak_bytes"`
	PeakAt int   `json:"peak_at"`
	// Layers are the predicted times by layer and category, the longest first. It is empty without
	// a prediction. The sum is [cost.Prediction].Seconds.
	Layers []LayerTime `json:"layers,omitempty"`
}

// Value is an array in a core's main memory.
type Value struct {
	// Role is "variable", "argument", "result" or "temporary".
	Role string `json:"role"`
	// Name is the name of the tensor. For a temporary it is the compiler's name of the operation
	// that defines it, with Source, Layer and Line as in [cost.Operation]. A variable has the line that
	// reads it first.
	Name   string `json:"name,omitempty"`
	Source string `json:"source,omitempty"`
	Layer  string `json:"layer,omitempty"`
	Line   int    `json:"line,omitempty"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	// Bytes is the size on a core, with padding.
	Bytes int64 `json:"bytes"`
	// From and To are the numbers of the first and the last operation during which the value is
	// live.
	From int `json:"from"`
	To   int `json:"to"`
}

// LayerTime is the predicted time of a layer in one category: "products", "memory", "interconnect"
// or "network". Layers whose names differ only in numbers are one entry, with a star for each
// number. Layer is empty if it is unknown.
type LayerTime struct {
	Layer   string  `json:"layer"`
	Kind    string  `json:"kind"`
	Seconds float64 `json:"seconds"`
}

// The limits of a schedule.
const maxOperations, maxValues = 4000, 400

// addSchedule adds the schedule of a simulated program to the report. hasOrigins is true if the
// lines of Go are known. byLine contains the collectives of each line.
func (r *Report) addSchedule(e *cost.Estimate, hasOrigins bool, byLine map[lineKey]*Collective) {
	if e.Unscheduled {
		r.note("the optimized program is too large to simulate, so the memory over the schedule is unknown")
	}
	if len(e.Operations) == 0 {
		return
	}
	r.Memory.excludeFast(e.PeakBytes, e.FastBytes, e.TotalBytes)
	s := &Schedule{Peak: e.PeakBytes, PeakAt: e.PeakAt, Layers: layerTimes(e.Operations), Operations: e.Operations}
	lines := newLines()
	s.addValues(r, e.Buffers, lines)
	if hasOrigins {
		lines.addTimes(s.Operations, 1)
		lines.addCollectives(byLine)
		var numbers []int
		r.Lines, numbers = lines.finish()
		for k := range s.Values {
			s.Values[k].Line = numbers[s.Values[k].Line]
		}
		lines.setLines(s.Operations, numbers)
	}
	dropInstructions(s.Operations)
	if e.Count > maxOperations {
		s.join(e.Count)
	}
	r.Schedule = s
}

// dropInstructions removes the references to the program from operations, because a report does not
// contain the program.
func dropInstructions(all []cost.Operation) {
	for k := range all {
		all[k].Instruction = nil
		dropInstructions(all[k].Inside)
	}
}

// addValues adds the largest buffers to the schedule. For each line of Go, it also adds up the
// sizes of the line's buffers that are live at the peak.
func (s *Schedule) addValues(r *Report, all []*cost.Buffer, lines *lineTable) {
	all = slices.DeleteFunc(slices.Clone(all), func(b *cost.Buffer) bool { return b.Bytes == 0 })
	slices.SortStableFunc(all, func(a, b *cost.Buffer) int { return cmp.Compare(b.Bytes, a.Bytes) })
	for k, b := range all {
		line := lines.number(b.Origin)
		atPeak := b.From <= s.PeakAt && s.PeakAt <= b.To
		if atPeak {
			lines.all[line].PeakBytes += b.Bytes
		}
		if k >= maxValues {
			if atPeak {
				s.Rest += b.Bytes
			}
			continue
		}
		v := Value{Role: "temporary", Layer: b.Layer, Line: line, DType: b.Array.DType, Shape: append([]int{},
			intDims(b.Array.Dims)...), Bytes: b.Bytes, From: b.From, To: b.To}
		switch {
		case b.Parameter >= 0:
			v.Role, v.Name = "argument", fmt.Sprintf("argument %d", b.Parameter)
			if t := r.argument(b.Parameter); t != nil {
				v.Role, v.Name = t.Role, t.Name
			}
		case b.IsResult:
			v.Role = "result"
			fallthrough
		default:
			if b.By != nil {
				v.Name, v.Source = b.By.Name, b.By.Source
			}
		}
		s.Values = append(s.Values, v)
	}
}

// valuesAtPeak returns the values that are live when memory in use is at its peak. Similar values
// are grouped. The group with the most bytes is first.
func (s *Schedule) valuesAtPeak() []similarValues {
	type kind struct{ role, of, dtype, shape string }
	var each []similarValues
	for _, v := range s.Values {
		if v.From <= s.PeakAt && s.PeakAt <= v.To {
			each = append(each, similarValues{v, v.describe(), 1})
		}
	}
	all := groupBy(each, func(v similarValues) kind { return kind{v.Role, pattern(v.Of), v.DType, dimsText(v.Shape)} },
		func(first *similarValues, next similarValues) {
			first.Count++
			first.Of = commonName(first.Of, next.Of)
		})
	slices.SortStableFunc(all, func(a, b similarValues) int {
		return cmp.Compare(product64(b.Bytes, int64(b.Count)), product64(a.Bytes, int64(a.Count)))
	})
	return all
}

// similarValues is a group of values with the same role and type, whose descriptions differ only in
// numbers. Of is the common description, with a star for each of these numbers.
type similarValues struct {
	Value
	Of    string
	Count int
}

func (v Value) describe() string {
	if v.Role == "variable" || v.Role == "argument" {
		return v.Name
	}
	name := cmp.Or(v.Source, v.Name)
	if v.Layer != "" {
		return v.Layer + ": " + name
	}
	return name
}

func (r *Report) argument(number int) *memory.Tensor {
	if number < len(r.Tensors) && r.Tensors[number].Role != "result" {
		return &r.Tensors[number]
	}
	return nil
}

// layerOf returns the layer of a variable, which is the variable's name without the last component.
// It returns "" for arguments that are not variables.
func (r *Report) layerOf(argument int) string {
	t := r.argument(argument)
	if t == nil || t.Role != "variable" {
		return ""
	}
	name := strings.TrimPrefix(t.Name, "/")
	return name[:max(strings.LastIndex(name, "/"), 0)]
}

func layerTimes(all []cost.Operation) (times []LayerTime) {
	sums, names := map[string]*cost.CoreTime{}, map[string]string{}
	var add func(all []cost.Operation, n float64)
	add = func(all []cost.Operation, n float64) {
		for _, o := range all {
			if o.Inside != nil {
				add(o.Inside, n*float64(max(o.Iterations, 1)))
				continue
			}
			if o.Seconds() == 0 {
				continue
			}
			key := pattern(o.Layer)
			if sums[key] == nil {
				sums[key], names[key] = &cost.CoreTime{}, o.Layer
			}
			sums[key].Add(o.CoreTime, n)
			names[key] = commonName(names[key], o.Layer)
		}
	}
	add(all, 1)
	for key, sum := range sums {
		for _, t := range timesByKind(*sum) {
			if t.Seconds > 0 {
				times = append(times, LayerTime{names[key], t.Kind, t.Seconds})
			}
		}
	}
	slices.SortFunc(times, func(a, b LayerTime) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Kind, b.Kind))
	})
	return times
}

// join merges adjacent short operations until at most about [maxOperations] operations remain, and
// renumbers the operations.
func (s *Schedule) join(count int) {
	total := 0.0
	for _, o := range s.Operations {
		total += o.Seconds()
	}
	least, chunk := total/maxOperations, (count+maxOperations-1)/maxOperations*2
	renumbered := make([]int, count+1)
	next := 0
	var walk func(all []cost.Operation) []cost.Operation
	walk = func(all []cost.Operation) (out []cost.Operation) {
		open := false // the last entry accepts more operations
		for _, o := range all {
			small := o.Inside == nil && o.Beside == nil && o.Seconds() <= least && o.Number != s.PeakAt
			if last := len(out) - 1; small && open && max(out[last].Joined, 1) < chunk && out[last].Layer == o.Layer {
				into := &out[last]
				into.Joined = max(into.Joined, 1) + 1
				into.Name, into.Operation, into.Source = "", "", ""
				into.CoreTime.Add(o.CoreTime, 1)
				into.InUse = max(into.InUse, o.InUse)
				renumbered[o.Number] = into.Number
				continue
			}
			open = small
			renumbered[o.Number] = next
			o.Number = next
			next++
			o.Inside = walk(o.Inside)
			out = append(out, o)
		}
		return out
	}
	s.Operations = walk(s.Operations)
	s.PeakAt = renumbered[s.PeakAt]
	for k := range s.Values {
		s.Values[k].From, s.Values[k].To = renumbered[min(s.Values[k].From, count)], renumbered[min(s.Values[k].To, count)]
	}
}

// peakOperation describes the operation during which memory in use is at its peak, such as "during
// fusion.7".
func (s *Schedule) peakOperation() string {
	if o := findOperation(s.Operations, s.PeakAt); o != nil {
		return "during " + cmp.Or(o.Name, fmt.Sprintf("%d operations", o.Joined))
	}
	return "at an operation that is not known"
}

func findOperation(all []cost.Operation, number int) *cost.Operation {
	for k := range all {
		if all[k].Number == number {
			return &all[k]
		}
		if o := findOperation(all[k].Inside, number); o != nil {
			return o
		}
	}
	return nil
}

type layerRow struct {
	Layer   string
	Seconds float64
	Parts   []LayerTime // all kinds, in order
}

var timeKinds = []string{"products", "memory", "interconnect", "network"}

func timesByKind(t cost.CoreTime) (all []LayerTime) {
	for k, seconds := range []float64{t.Products, t.Memory, t.Interconnect, t.Network} {
		all = append(all, LayerTime{Kind: timeKinds[k], Seconds: seconds})
	}
	return all
}

// byLayer adds up the predicted times of each layer. The layer with the longest time is first. If s
// is nil, there are no layers.
func (s *Schedule) byLayer() (rows []layerRow) {
	if s == nil {
		return nil
	}
	at := map[string]int{}
	for _, x := range s.Layers {
		n, known := at[x.Layer]
		if !known {
			n = len(rows)
			at[x.Layer] = n
			rows = append(rows, layerRow{Layer: x.Layer, Parts: timesByKind(cost.CoreTime{})})
		}
		rows[n].Seconds += x.Seconds
		if k := slices.Index(timeKinds, x.Kind); k >= 0 {
			rows[n].Parts[k].Seconds += x.Seconds
		}
	}
	slices.SortStableFunc(rows, func(a, b layerRow) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return rows
}
