package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Schedule is one run of the step on one core, in the order that the compiler has put its operations
// in: when each runs, as far as times are predicted, and how much of the main memory is in use. The
// memory is derived from the program, each value from the operation that makes it to the last one that
// takes it, with the padding of its layout. It is not the compiler's own assignment, whose figures
// [Memory] has.
type Schedule struct {
	// Operations are those of the step, and those of loops and branches inside them. Neighbors that
	// take little are joined where there are very many.
	Operations []Operation `json:"operations"`
	// Values are the largest in the main memory, largest first; Rest is the size of the other ones at
	// the peak.
	Values []Value `json:"values"`
	Rest   int64   `json:"rest_bytes,omitempty"`
	// Peak is the most memory that is in use at once, during the operation of the number PeakAt. The
	// code is not part of it.
	Peak   int64 `json:"peak_bytes"`
	PeakAt int   `json:"peak_at"`
	// Layers are the predicted times by layer and by what takes them, longest first; none without a
	// prediction. Their sum is [Prediction].Seconds.
	Layers []LayerTime `json:"layers,omitempty"`
}

// Operation is an operation of a [Schedule].
type Operation struct {
	// Number counts the operations in their order; what is in a loop comes after the loop, and counts
	// for one round.
	Number int `json:"number"`
	// Name is the compiler's, Operation its word for the operation, Source the name that the step gave
	// the operation it was made of, and Layer the part of the model that it belongs to. Each is empty if
	// it is not known, as of joined operations.
	Name      string `json:"name,omitempty"`
	Operation string `json:"operation,omitempty"`
	Source    string `json:"source,omitempty"`
	Layer     string `json:"layer,omitempty"`
	// Line is the number in [Report].Lines, from 1, of the line that it comes from, or most of it; 0 if that
	// is not known.
	Line int `json:"line,omitempty"`
	// Joined is the number of operations that are joined in this one; 0 of one.
	Joined int `json:"joined,omitempty"`
	// Start is the predicted time from the start of the step, or of a round of the loop that it is in.
	Start float64 `json:"start_seconds,omitempty"`
	// CoreTime is, of a loop, that of all rounds.
	CoreTime
	// Beside is what it starts beside the core.
	Beside *Transfer `json:"beside,omitempty"`
	// InUse is the main memory that is in use while it runs, of a loop at most.
	InUse int64 `json:"in_use_bytes"`
	// Rounds is how often a loop runs Inside, the operations of a round; 0 if it is no loop.
	Rounds int         `json:"rounds,omitempty"`
	Inside []Operation `json:"inside,omitempty"`

	by *hloInstruction // nil in a report that was read
}

// CoreTime is the predicted time that something keeps a core for, by what takes it, as in a [Prediction].
// Interconnect and Network are what is exposed.
type CoreTime struct {
	Products     float64 `json:"products_seconds,omitempty"`
	Memory       float64 `json:"memory_seconds,omitempty"`
	Interconnect float64 `json:"interconnect_seconds,omitempty"`
	Network      float64 `json:"network_seconds,omitempty"`
}

// Seconds is the whole time.
func (t CoreTime) Seconds() float64 { return t.Products + t.Memory + t.Interconnect + t.Network }

// waits is the time for collectives.
func (t CoreTime) waits() float64 { return t.Interconnect + t.Network }

// add adds a time that is taken so often.
func (t *CoreTime) add(o CoreTime, n float64) {
	t.Products, t.Memory = bounded(t.Products+n*o.Products), bounded(t.Memory+n*o.Memory)
	t.Interconnect, t.Network = bounded(t.Interconnect+n*o.Interconnect), bounded(t.Network+n*o.Network)
}

// times are the parts, in the order of timeKinds.
func (t CoreTime) times() (all []LayerTime) {
	for k, seconds := range []float64{t.Products, t.Memory, t.Interconnect, t.Network} {
		all = append(all, LayerTime{Kind: timeKinds[k], Seconds: seconds})
	}
	return all
}

// Transfer is what goes on beside a core.
type Transfer struct {
	// On is "interconnect", "network" or, between the memories of a chip, "transfers".
	On string `json:"on"`
	// Start is as that of an [Operation].
	Start   float64 `json:"start_seconds"`
	Seconds float64 `json:"seconds"`
}

// Value is an array in a core's main memory.
type Value struct {
	// Role is "variable", "argument", "result" or "temporary".
	Role string `json:"role"`
	// Name is the tensor's, or of a temporary the compiler's name of the operation that makes it, whose
	// Source, Layer and Line are as of an [Operation]. A variable has the line that reads it first.
	Name   string `json:"name,omitempty"`
	Source string `json:"source,omitempty"`
	Layer  string `json:"layer,omitempty"`
	Line   int    `json:"line,omitempty"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	// Bytes is its size on a core, with padding.
	Bytes int64 `json:"bytes"`
	// From and To are the numbers of the first and the last operation that it is there for.
	From int `json:"from"`
	To   int `json:"to"`
}

// LayerTime is the predicted time of a layer that one thing takes: "products", "memory",
// "interconnect" or "network". Layers that differ in numbers alone are one, with a star for each. The
// layer is empty where it is not known.
type LayerTime struct {
	Layer   string  `json:"layer"`
	Kind    string  `json:"kind"`
	Seconds float64 `json:"seconds"`
}

// What bounds a schedule.
const mostOperations, mostValues = 4000, 400

// addSchedule derives the schedule of a program that w has counted.
func (r *Report) addSchedule(m *hloModule, w *worker) {
	l := &lives{module: m, worker: w, layers: r.scope}
	var operations []Operation
	if !w.cut {
		operations = l.program()
	}
	switch {
	case l.cut || w.cut:
		r.note("the optimized program is too large to be laid out in its order, so the memory over the schedule is not known")
		return
	case l.count == 0:
		return
	}
	bytes, peak := l.inUse()
	fast, both := l.fastAtPeak()
	r.Memory.leaveOutFast(bytes[peak], fast, both)
	s := &Schedule{Peak: bytes[peak], PeakAt: peak, Layers: layerTimes(operations)}
	fill(operations, bytes)
	lines := newLines()
	s.addValues(r, l.buffers, lines)
	r.addLines(s, m, operations, lines)
	s.Operations = operations
	if l.count > mostOperations {
		s.join(l.count)
	}
	r.Schedule = s
}

// fill gives the operations the memory that is in use.
func fill(all []Operation, bytes []int64) (most int64) {
	for k := range all {
		o := &all[k]
		o.InUse = max(bytes[o.Number], fill(o.Inside, bytes))
		most = max(most, o.InUse)
	}
	return most
}

func (s *Schedule) addValues(r *Report, all []*buffer, lines *lineTable) {
	all = slices.DeleteFunc(slices.Clone(all), func(b *buffer) bool { return b.bytes() == 0 })
	slices.SortStableFunc(all, func(a, b *buffer) int { return cmp.Compare(b.bytes(), a.bytes()) })
	for k, b := range all {
		line := lines.number(b.origin)
		if b.from <= s.PeakAt && s.PeakAt <= b.to {
			lines.all[line].PeakBytes += b.bytes()
		}
		if k >= mostValues {
			if b.from <= s.PeakAt && s.PeakAt <= b.to {
				s.Rest += b.bytes()
			}
			continue
		}
		v := Value{Role: "temporary", Layer: b.layer, Line: line, DType: elementNames[b.shape.element], Shape: []int{}, Bytes: b.bytes(), From: b.from, To: b.to}
		for _, d := range b.shape.dims {
			v.Shape = append(v.Shape, int(d))
		}
		switch {
		case b.parameter >= 0:
			v.Role, v.Name = "argument", fmt.Sprintf("argument %d", b.parameter)
			if t := r.argument(b.parameter); t != nil {
				v.Role, v.Name = t.Role, t.Name
			}
		case b.result:
			v.Role = "result"
			fallthrough
		default:
			if b.by != nil {
				v.Name, v.Source = b.by.name, b.by.source
			}
		}
		s.Values = append(s.Values, v)
	}
}

// AtPeak returns the values that are in memory at the peak, those that are alike together, the most
// bytes first.
func (s *Schedule) AtPeak() []Values {
	type kind struct{ role, of, dtype, shape string }
	var each []Values
	for _, v := range s.Values {
		if v.From <= s.PeakAt && s.PeakAt <= v.To {
			each = append(each, Values{v, v.of(), 1})
		}
	}
	all := together(each, func(v Values) kind { return kind{v.Role, pattern(v.Of), v.DType, dimsText(v.Shape)} }, func(first *Values, next Values) {
		first.Count++
		first.Of = both(first.Of, next.Of)
	})
	slices.SortStableFunc(all, func(a, b Values) int {
		return cmp.Compare(product64(b.Bytes, int64(b.Count)), product64(a.Bytes, int64(a.Count)))
	})
	return all
}

// Values are alike. Of is what they are, with a star for each number in which several differ.
type Values struct {
	Value
	Of    string
	Count int
}

// of is what a value is: a tensor's name, or of which layer and source.
func (v Value) of() string {
	if v.Role == "variable" || v.Role == "argument" {
		return v.Name
	}
	name := cmp.Or(v.Source, v.Name)
	if v.Layer != "" {
		return v.Layer + ": " + name
	}
	return name
}

// argument is the tensor of an argument of the program, nil if it is not known.
func (r *Report) argument(number int) *Tensor {
	if number < len(r.Tensors) && r.Tensors[number].Role != "result" {
		return &r.Tensors[number]
	}
	return nil
}

// scope is the layer of a variable: its name without the last word.
func (r *Report) scope(argument int) string {
	t := r.argument(argument)
	if t == nil || t.Role != "variable" {
		return ""
	}
	name := strings.TrimPrefix(t.Name, "/")
	return name[:max(strings.LastIndex(name, "/"), 0)]
}

// layerOf is the layer of an operation by what it takes: of most of its variables, and among equals of
// the last.
func layerOf(operands []*buffer) (layer string) {
	count, most := map[string]int{}, 0
	for _, b := range operands {
		if b == nil || b.layer == "" || b.shape.bytes() < leastTemporary {
			continue
		}
		if count[b.layer]++; count[b.layer] >= most {
			layer, most = b.layer, count[b.layer]
		}
	}
	return layer
}

// layerTimes adds the times up.
func layerTimes(all []Operation) (times []LayerTime) {
	type key struct{ layer, kind string }
	sums, names := map[key]float64{}, map[string]string{}
	var add func(all []Operation, rounds float64)
	add = func(all []Operation, rounds float64) {
		for _, o := range all {
			if o.Inside != nil {
				add(o.Inside, rounds*float64(max(o.Rounds, 1)))
				continue
			}
			for _, t := range o.times() {
				if t.Seconds > 0 {
					sums[key{pattern(o.Layer), t.Kind}] += rounds * t.Seconds
					names[pattern(o.Layer)] = both(cmp.Or(names[pattern(o.Layer)], o.Layer), o.Layer)
				}
			}
		}
	}
	add(all, 1)
	for k, seconds := range sums {
		times = append(times, LayerTime{names[k.layer], k.kind, bounded(seconds)})
	}
	slices.SortFunc(times, func(a, b LayerTime) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Kind, b.Kind))
	})
	return times
}

// join joins neighbors that take little, so that few more than [mostOperations] are left, and counts
// them anew.
func (s *Schedule) join(count int) {
	total := 0.0
	for _, o := range s.Operations {
		total += o.Seconds()
	}
	least, chunk := total/mostOperations, (count+mostOperations-1)/mostOperations*2
	renumbered := make([]int, count+1)
	next := 0
	var walk func(all []Operation) []Operation
	walk = func(all []Operation) (out []Operation) {
		open := false // the last one may be joined
		for _, o := range all {
			small := o.Inside == nil && o.Beside == nil && o.Seconds() <= least && o.Number != s.PeakAt
			if last := len(out) - 1; small && open && max(out[last].Joined, 1) < chunk && out[last].Layer == o.Layer {
				into := &out[last]
				into.Joined = max(into.Joined, 1) + 1
				into.Name, into.Operation, into.Source = "", "", ""
				into.CoreTime.add(o.CoreTime, 1)
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

// During says when the peak is, such as "during fusion.7".
func (s *Schedule) During() string {
	if o := numbered(s.Operations, s.PeakAt); o != nil {
		return "during " + cmp.Or(o.Name, fmt.Sprintf("%d operations", o.Joined))
	}
	return "at an operation that is not known"
}

// numbered is the operation of a number; nil without one.
func numbered(all []Operation, number int) *Operation {
	for k := range all {
		if all[k].Number == number {
			return &all[k]
		}
		if o := numbered(all[k].Inside, number); o != nil {
			return o
		}
	}
	return nil
}

// layerRow is the times of a layer by what takes them.
type layerRow struct {
	Layer   string
	Seconds float64
	Parts   []LayerTime // of all kinds, in order
}

var timeKinds = []string{"products", "memory", "interconnect", "network"}

// byLayer are the layers, longest first; none without a schedule.
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
			rows = append(rows, layerRow{Layer: x.Layer, Parts: CoreTime{}.times()})
		}
		rows[n].Seconds += x.Seconds
		if k := slices.Index(timeKinds, x.Kind); k >= 0 {
			rows[n].Parts[k].Seconds += x.Seconds
		}
	}
	slices.SortStableFunc(rows, func(a, b layerRow) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return rows
}
