package cost

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/report/hlo"
)

// Buffer is the memory of one array of a program, with the time during which it is live.
type Buffer struct {
	Array *hlo.Array
	// By is the operation that computes the array. It is nil for an argument of the program, whose
	// number is Parameter. Parameter is -1 for other buffers.
	By        *hlo.Instruction
	Parameter int
	// From and To are the numbers of the first and the last operation during which the buffer is
	// live.
	From, To int
	// IsResult is set if the buffer is live at the end of the step.
	IsResult bool
	// Bytes is the size of the array in main memory, with padding.
	Bytes int64
	// Layer is the layer of the variables that the array was computed from, if there is only one.
	Layer string
	// Origin is the origin of the array, or nil if it is unknown.
	Origin *ir.Origin
}

func newBuffer(a *hlo.Array, parameter int) *Buffer {
	b := &Buffer{Array: a, Parameter: parameter, From: -1}
	if a.Memory == 0 {
		b.Bytes = a.PaddedBytes
	}
	return b
}

// liveness computes the live range of each array of a program: from the operation that defines it to
// the last operation that reads it, in schedule order. A compiler's buffer assignment can be smaller,
// because more operations may overwrite their operands, or larger, because of fragmentation.
type liveness struct {
	program   *hlo.Program
	estimator *estimator
	layerOf   func(parameter int) string
	buffers   []*Buffer
	count     int // number of operations so far
	steps     int
	truncated bool
	layer     string // of the previous operation
}

// maxScheduled bounds the instructions of a schedule, and maxParameter the number of a parameter, of
// a malformed program.
const maxScheduled, maxParameter = 1 << 18, 1 << 20

func extend(all []*Buffer, to int) {
	for _, b := range all {
		if b != nil {
			b.To = max(b.To, to)
		}
	}
}

func (l *liveness) run() []Operation {
	entry := l.program.Entry
	parameters := map[uint64][]*Buffer{}
	for _, i := range entry.Instructions {
		if i.Opcode == "parameter" && parameters[i.Number] == nil {
			number := int(min(i.Number, maxParameter))
			for k := range i.Arrays {
				b := newBuffer(&i.Arrays[k], number)
				b.From, b.Layer, b.Origin = 0, l.layerOf(number), i.Origin
				parameters[i.Number] = append(parameters[i.Number], b)
				l.buffers = append(l.buffers, b)
			}
		}
	}
	var results []*Buffer
	for k := 0; entry.Root != nil && k < len(entry.Root.Arrays); k++ {
		b := newBuffer(&entry.Root.Arrays[k], -1)
		if number, donated := l.program.Donated[k]; donated && len(parameters[number]) > 0 {
			b = parameters[number][0]
		} else {
			l.buffers = append(l.buffers, b)
		}
		b.IsResult = true
		results = append(results, b)
	}
	all := l.computation(entry, parameters, results, 0)
	for _, b := range l.buffers {
		if b.IsResult || b.By == nil {
			b.To = max(l.count-1, 0)
		}
		if b.From < 0 {
			b.From = b.To
		}
	}
	return all
}

// computation simulates the operations of a computation in schedule order. It stores the results of
// the computation in the given buffers.
func (l *liveness) computation(c *hlo.Computation, parameters map[uint64][]*Buffer, results []*Buffer,
	depth int) (all []Operation) {
	if c == nil || depth > maxDepth || l.truncated {
		return nil
	}
	resultOf := func(a hlo.Array) *Buffer {
		for _, k := range a.Results {
			if k < len(results) && results[k] != nil {
				return results[k]
			}
		}
		return nil
	}
	values := map[*hlo.Instruction][]*Buffer{}
	first := l.count
	slots := l.estimator.slots[c]
	for k, i := range c.Instructions {
		if l.steps++; l.steps > maxScheduled {
			l.truncated = true
			break
		}
		var operands []*Buffer
		if len(i.Operands) == 1 {
			operands = values[i.Operands[0]]
		} else {
			for _, operand := range i.Operands {
				operands = append(operands, values[operand]...)
			}
		}
		var s slot
		if k < len(slots) {
			s = slots[k]
		}
		if own, isAlias := l.alias(i, parameters, operands); isAlias {
			values[i] = own
			if s.times.seconds() > 0 { // the core waits
				all = append(all, l.operation(i, s, operands))
			}
			continue
		}
		at := l.count
		op := l.operation(i, s, operands)
		own := values[i]
		passed := passedBuffers(i, operands)
		for j := range i.Arrays {
			b := resultOf(i.Arrays[j])
			switch {
			case b != nil:
			case j < len(passed) && passed[j] != nil:
				b = passed[j]
			default:
				if b = l.overwritten(i, values, first); b != nil {
					break
				}
				b = newBuffer(&i.Arrays[j], -1)
				l.buffers = append(l.buffers, b)
			}
			if b.From < 0 {
				b.From, b.By, b.Origin = at, i, i.Arrays[j].Origin
			}
			if b.Parameter < 0 && i.Opcode != "while" {
				if b.Layer = ""; haveLayer(operands, op.Layer) {
					b.Layer = op.Layer
				}
			}
			own = append(own, b)
		}
		extend(own, at)
		values[i] = own
		switch i.Opcode {
		case "while":
			op.Iterations = 1
			if i.HasIterations {
				op.Iterations = i.Iterations
			}
			for _, called := range i.Called {
				if called == nil {
					continue
				}
				carried := own
				if called.Root == nil || len(called.Root.Arrays) != len(own) {
					carried = nil // the condition
				}
				op.Inside = append(op.Inside, l.computation(called, map[uint64][]*Buffer{0: own}, carried, depth+1)...)
			}
		case "call":
			for _, called := range i.Called {
				arguments := map[uint64][]*Buffer{}
				for n, operand := range i.Operands {
					arguments[uint64(n)] = values[operand]
				}
				op.Inside = append(op.Inside, l.computation(called, arguments, own, depth+1)...)
			}
		case "conditional":
			if n, branch := l.estimator.longestBranch(i); branch != nil {
				arguments := map[uint64][]*Buffer{}
				if n+1 < len(i.Operands) {
					arguments[0] = values[i.Operands[n+1]]
				}
				op.Inside = append(op.Inside, l.computation(branch, arguments, own, depth+1)...)
			}
		}
		extend(own, l.count-1)
		extend(operands, l.count-1)
		all = append(all, op)
	}
	return all
}

func (l *liveness) operation(i *hlo.Instruction, s slot, operands []*Buffer) Operation {
	layer := ""
	if i.Origin != nil {
		layer = strings.TrimPrefix(i.Origin.Layer, "/")
	}
	if layer == "" {
		layer = cmp.Or(mainLayer(operands), l.layer)
	}
	l.layer = layer
	op := Operation{
		Instruction: i,
		Number:      l.count, Name: i.Name, Operation: i.Opcode, Source: i.Source, Layer: layer, Start: s.start,
		Beside:   s.transfer,
		CoreTime: CoreTime{s.times.products, s.times.memory, s.times.interconnect.Exposed, s.times.network.Exposed},
	}
	extend(operands, l.count)
	l.count++
	return op
}

// minLayerBytes is the minimum size of an array that determines the layer of an operation. Indices
// are smaller.
const minLayerBytes = 1 << 10

// mainLayer returns the layer to which most of the arrays belong. If several layers are equally
// frequent, it returns the last one. Arrays that are too small, such as indices, do not count.
func mainLayer(arrays []*Buffer) (layer string) {
	count, most := map[string]int{}, 0
	for _, b := range arrays {
		if b == nil || b.Layer == "" || b.Array.Bytes < minLayerBytes {
			continue
		}
		if count[b.Layer]++; count[b.Layer] >= most {
			layer, most = b.Layer, count[b.Layer]
		}
	}
	return layer
}

// haveLayer reports whether all arrays belong to the given layer. Arrays that are too small, such
// as indices, do not count.
func haveLayer(arrays []*Buffer, layer string) bool {
	any := false
	for _, b := range arrays {
		if b == nil || b.Array.Bytes < minLayerBytes {
			continue
		}
		if b.Layer != layer {
			return false
		}
		any = true
	}
	return any
}

// overwritesOperands reports whether a compiler can store the result of an operation in the memory
// of an operand, because the operation works element by element.
func overwritesOperands(i *hlo.Instruction) bool {
	switch i.Opcode {
	case "fusion", "all-reduce", "add", "subtract", "multiply", "divide", "maximum", "minimum", "select", "negate", "tanh",
		"exponential":
		return true
	}
	return false
}

// overwritten returns the buffer of an operand in which the result of i can be stored, or nil if
// there is none. The operand must have the shape of the result, must not have other readers, and
// must have been computed by operation first or later.
func (l *liveness) overwritten(i *hlo.Instruction, values map[*hlo.Instruction][]*Buffer, first int) *Buffer {
	if i.IsTuple || !overwritesOperands(i) {
		return nil
	}
	for _, o := range i.Operands {
		own := values[o]
		if len(own) != 1 || own[0] == nil || own[0].By != o || own[0].IsResult || own[0].From < first || o.Readers != 1 {
			continue
		}
		a, b := own[0].Array, i.Arrays[0]
		if a.DType == b.DType && slices.Equal(a.Dims, b.Dims) && a.Memory == b.Memory {
			return own[0]
		}
	}
	return nil
}

// alias returns the buffers of an instruction that allocates no memory and takes no time, such as a
// tuple. isAlias is false for all other instructions.
func (l *liveness) alias(i *hlo.Instruction, parameters map[uint64][]*Buffer, operands []*Buffer) (own []*Buffer,
	isAlias bool) {
	switch i.Opcode {
	case "parameter":
		return parameters[i.Number], true
	case "constant", "after-all", "partition-id", "replica-id":
		return make([]*Buffer, len(i.Arrays)), true
	case "tuple", "bitcast", "opt-barrier", "add-dependency", "domain", "async-update":
		return operands, true
	case "copy-done", "all-gather-done", "collective-permute-done", "async-done", "all-reduce-done", "send-done",
		"recv-done":
		extend(operands, max(l.count-1, 0))
		fallthrough
	case "get-tuple-element":
		own = make([]*Buffer, len(i.Arrays))
		if i.First < len(operands) {
			copy(own, operands[i.First:])
		}
		return own, true
	}
	return nil, false
}

// passedBuffers returns the buffers of an operation's results. Results that share the memory of an
// operand have the operand's buffer, and all others have nil.
func passedBuffers(i *hlo.Instruction, operands []*Buffer) []*Buffer {
	switch i.Opcode {
	case "while", "all-gather-start", "collective-permute-start", "async-start":
		return operands
	case "dynamic-update-slice":
		return operands[:min(len(operands), 1)]
	case "copy-start":
		return append([]*Buffer{nil}, operands...)
	case "fusion":
		own := make([]*Buffer, len(i.Updated))
		for k, operand := range i.Updated {
			if operand >= 0 && len(operands) == len(i.Operands) {
				own[k] = operands[operand]
			}
		}
		return own
	}
	return nil
}

// setInUse sets the memory in use during each operation, and returns the maximum. bytes contains
// the memory in use, indexed by the number of the operation.
func setInUse(all []Operation, bytes []int64) (most int64) {
	for k := range all {
		o := &all[k]
		o.InUse = max(bytes[o.Number], setInUse(o.Inside, bytes))
		most = max(most, o.InUse)
	}
	return most
}

// inUse returns the total size of the live buffers during each operation, and the number of the
// operation with the largest total.
func (l *liveness) inUse(size func(b *Buffer) int64) (bytes []int64, peak int) {
	change := make([]int64, l.count+1)
	for _, b := range l.buffers {
		if n := size(b); n > 0 && b.From < l.count {
			change[b.From] += n
			change[min(b.To+1, l.count)] -= n
		}
	}
	now := int64(0)
	for k := range l.count {
		now += change[k]
		bytes = append(bytes, now)
	}
	if len(bytes) > 0 {
		peak = slices.Index(bytes, slices.Max(bytes))
	}
	return bytes, peak
}
