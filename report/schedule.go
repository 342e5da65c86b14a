package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

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
	Operations []Operation `json:"operations"`
	// Values are the largest values in main memory, the largest first. Rest is the size of the
	// other values at the peak.
	Values []Value `json:"values"`
	Rest   int64   `json:"rest_bytes,omitempty"`
	// Peak is the maximum memory in use, during the operation with the number PeakAt. It does not
	// include the code.
	Peak   int64 `json:"peak_bytes"`
	PeakAt int   `json:"peak_at"`
	// Layers are the predicted times by layer and category, the longest first. It is empty without
	// a prediction. The sum is [Prediction].Seconds.
	Layers []LayerTime `json:"layers,omitempty"`
}

// Operation is an operation of a [Schedule].
type Operation struct {
	// Number is the position of the operation. The operations of a loop follow the loop and are
	// numbered for one iteration.
	Number int `json:"number"`
	// Name is the compiler's name. Operation is the compiler's opcode. Source is the name of the
	// original operation in the step. Layer is the part of the model that the operation belongs to.
	// Each is empty if it is unknown, as for joined operations.
	Name      string `json:"name,omitempty"`
	Operation string `json:"operation,omitempty"`
	Source    string `json:"source,omitempty"`
	Layer     string `json:"layer,omitempty"`
	// Line is the number in [Report].Lines, from 1, of the line with the largest share of the
	// operation, or 0 if it is unknown.
	Line int `json:"line,omitempty"`
	// Joined is the number of operations that are joined in this entry, or 0 for a single
	// operation.
	Joined int `json:"joined,omitempty"`
	// Start is the predicted time since the start of the step, or since the start of an iteration
	// of the enclosing loop.
	Start float64 `json:"start_seconds,omitempty"`
	// CoreTime of a loop is the time of all iterations.
	CoreTime
	// Beside is the transfer that the operation starts.
	Beside *Transfer `json:"beside,omitempty"`
	// InUse is the main memory in use while the operation runs. For a loop it is the maximum.
	InUse int64 `json:"in_use_bytes"`
	// Iterations is the number of iterations of a loop, and 0 for other operations. Inside are the
	// operations of one iteration.
	Iterations int         `json:"rounds,omitempty"`
	Inside     []Operation `json:"inside,omitempty"`

	by *hloInstruction // nil in a parsed report
}

// CoreTime is the predicted time during which a core is occupied, by category as in a [Prediction].
// Interconnect and Network are the exposed times.
type CoreTime struct {
	Products     float64 `json:"products_seconds,omitempty"`
	Memory       float64 `json:"memory_seconds,omitempty"`
	Interconnect float64 `json:"interconnect_seconds,omitempty"`
	Network      float64 `json:"network_seconds,omitempty"`
}

// Seconds returns the total time.
func (t CoreTime) Seconds() float64 { return t.Products + t.Memory + t.Interconnect + t.Network }

// waits returns the time for collectives.
func (t CoreTime) waits() float64 { return t.Interconnect + t.Network }

// add adds n times the time o.
func (t *CoreTime) add(o CoreTime, n float64) {
	t.Products, t.Memory = bounded(t.Products+n*o.Products), bounded(t.Memory+n*o.Memory)
	t.Interconnect, t.Network = bounded(t.Interconnect+n*o.Interconnect), bounded(t.Network+n*o.Network)
}

// times returns the parts in the order of timeKinds.
func (t CoreTime) times() (all []LayerTime) {
	for k, seconds := range []float64{t.Products, t.Memory, t.Interconnect, t.Network} {
		all = append(all, LayerTime{Kind: timeKinds[k], Seconds: seconds})
	}
	return all
}

// Transfer is an asynchronous operation that runs concurrently with a core.
type Transfer struct {
	// On is "interconnect", "network" or, between the memories of a chip, "transfers".
	On string `json:"on"`
	// Start is relative to the same time as the Start of an [Operation].
	Start   float64 `json:"start_seconds"`
	Seconds float64 `json:"seconds"`
}

// Value is an array in a core's main memory.
type Value struct {
	// Role is "variable", "argument", "result" or "temporary".
	Role string `json:"role"`
	// Name is the name of the tensor. For a temporary it is the compiler's name of the operation
	// that defines it, with Source, Layer and Line as in [Operation]. A variable has the line that
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
const mostOperations, mostValues = 4000, 400

// addSchedule adds the schedule of a program that w has counted.
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

// fill sets the memory in use of the operations.
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

// AtPeak returns the values that are live at the peak, in groups of similar values, the most bytes
// first.
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

// Values are similar values. Of describes them, with a star for each number in which they differ.
type Values struct {
	Value
	Of    string
	Count int
}

// of describes a value: the name of its tensor, or its layer and source.
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

// argument returns the tensor of an argument of the program, or nil if it is unknown.
func (r *Report) argument(number int) *memory.Tensor {
	if number < len(r.Tensors) && r.Tensors[number].Role != "result" {
		return &r.Tensors[number]
	}
	return nil
}

// scope returns the layer of a variable: its name without the last component.
func (r *Report) scope(argument int) string {
	t := r.argument(argument)
	if t == nil || t.Role != "variable" {
		return ""
	}
	name := strings.TrimPrefix(t.Name, "/")
	return name[:max(strings.LastIndex(name, "/"), 0)]
}

// layerOf returns the layer of an operation by its operands: the layer of most of its variables, or
// the last one of several equally frequent layers.
func layerOf(operands []*buffer) (layer string) {
	count, most := map[string]int{}, 0
	for _, b := range operands {
		if b == nil || b.layer == "" || b.shape.bytes() < memory.MinTemporaryBytes {
			continue
		}
		if count[b.layer]++; count[b.layer] >= most {
			layer, most = b.layer, count[b.layer]
		}
	}
	return layer
}

// layerTimes sums the times by layer.
func layerTimes(all []Operation) (times []LayerTime) {
	type key struct{ layer, kind string }
	sums, names := map[key]float64{}, map[string]string{}
	var add func(all []Operation, rounds float64)
	add = func(all []Operation, rounds float64) {
		for _, o := range all {
			if o.Inside != nil {
				add(o.Inside, rounds*float64(max(o.Iterations, 1)))
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

// join joins adjacent short operations, so that few more than [mostOperations] remain, and
// renumbers them.
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
		open := false // the last entry accepts more operations
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

// During describes the time of the peak, such as "during fusion.7".
func (s *Schedule) During() string {
	if o := numbered(s.Operations, s.PeakAt); o != nil {
		return "during " + cmp.Or(o.Name, fmt.Sprintf("%d operations", o.Joined))
	}
	return "at an operation that is not known"
}

// numbered returns the operation with a number, or nil if there is none.
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

// layerRow contains the times of a layer by category.
type layerRow struct {
	Layer   string
	Seconds float64
	Parts   []LayerTime // all kinds, in order
}

var timeKinds = []string{"products", "memory", "interconnect", "network"}

// byLayer returns the layers, the longest first. It returns none without a schedule.
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
