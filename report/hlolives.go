package report

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/report/memory"
)

// buffer is the memory of an array of a program.
type buffer struct {
	shape hloShape
	// by is the operation that defines the array. It is nil for an argument of the step, whose
	// index is parameter.
	by        *hloInstruction
	parameter int
	// from and to are the numbers of the first and the last operation during which the buffer is
	// live.
	from, to int
	// result is set if the buffer is live at the end of the step.
	result bool
	// layer is the scope of the variable that the array was computed from, if there is only one.
	layer string
	// origin is the origin of the array, or nil if it is unknown.
	origin *ir.Origin
}

// bytes returns the size of the array in main memory.
func (b *buffer) bytes() int64 {
	if b == nil || b.shape.memory != 0 {
		return 0
	}
	return b.shape.padded()
}

// lives computes the live range of each array of a program: from the operation that defines it to
// the last operation that reads it, in schedule order. Arrays that a loop carries or that a step
// updates stay in their memory. A compiler's buffer assignment can be smaller, because operations
// may overwrite their operands, or larger, because of fragmentation.
type lives struct {
	module  *hloModule
	worker  *worker
	layers  func(parameter int) string
	buffers []*buffer
	count   int // number of operations so far
	steps   int
	cut     bool
	current string // the layer of the previous operation
}

// mostScheduled bounds the instructions of a schedule of a malformed program.
const mostScheduled = 1 << 18

// extend extends the live ranges of buffers to the next operation.
func (l *lives) extend(all []*buffer, to int) {
	for _, b := range all {
		if b != nil {
			b.to = max(b.to, to)
		}
	}
}

// program walks the entry computation and returns its operations.
func (l *lives) program() []Operation {
	entry := l.module.computations[l.module.entry]
	parameters := map[uint64][]*buffer{}
	for _, i := range entry.instructions {
		if i.opcode == "parameter" && parameters[i.number] == nil {
			for _, s := range i.shape.arrays(nil) {
				b := &buffer{shape: s, parameter: int(min(i.number, maxDevices)), layer: l.layers(int(min(i.number, maxDevices))), origin: i.origin}
				parameters[i.number] = append(parameters[i.number], b)
				l.buffers = append(l.buffers, b)
			}
		}
	}
	var results []*buffer
	if root := entry.byID[entry.root]; root != nil {
		for k, s := range root.shape.arrays(nil) {
			b := &buffer{shape: s, from: -1, result: true, parameter: -1}
			if number, donated := l.module.donated[k]; donated && len(parameters[number]) > 0 {
				b = parameters[number][0]
				b.result = true
			} else {
				l.buffers = append(l.buffers, b)
			}
			results = append(results, b)
		}
	}
	all := l.computation(l.module.entry, parameters, results, 0)
	for _, b := range l.buffers {
		if b.result || b.by == nil {
			b.to = max(l.count-1, 0)
		}
		if b.from < 0 {
			b.from = b.to
		}
	}
	return all
}

// made identifies an array: an element of the result of an instruction.
type made struct {
	id    uint64
	array int
}

// origin follows an array back through tuples and views to the instruction that defines it.
func (c *hloComputation) origin(at made) made {
	for range maxDepth {
		i := c.byID[at.id]
		if i == nil {
			return at
		}
		switch i.opcode {
		case "tuple":
			k, found := at.array, false
			for _, operand := range i.operands {
				o := c.byID[operand]
				if o == nil {
					return at
				}
				if n := o.shape.width(); k >= n {
					k -= n
					continue
				}
				at, found = made{operand, k}, true
				break
			}
			if !found {
				return at
			}
		case "get-tuple-element":
			if len(i.operands) != 1 || c.byID[i.operands[0]] == nil {
				return at
			}
			at = made{i.operands[0], at.array + c.byID[i.operands[0]].shape.before(i.index)}
		case "bitcast", "opt-barrier", "copy-done":
			if len(i.operands) != 1 {
				return at
			}
			at.id = i.operands[0]
		default:
			return at
		}
	}
	return at
}

// width returns the number of arrays of a shape.
func (s hloShape) width() int { return len(s.arrays(nil)) }

// before returns the number of arrays in the tuple elements before the given element.
func (s hloShape) before(element uint64) (n int) {
	for k := range min(element, uint64(len(s.elements))) {
		n += s.elements[k].width()
	}
	return n
}

// computation walks the operations of a computation. Its results are stored in the given buffers.
func (l *lives) computation(id uint64, parameters map[uint64][]*buffer, results []*buffer, depth int) (all []Operation) {
	c := l.module.computations[id]
	if c == nil || depth > maxDepth || l.cut {
		return nil
	}
	into := map[made]*buffer{}
	for k, b := range results {
		if at := c.origin(made{c.root, k}); b != nil && into[at] == nil {
			into[at] = b
		}
	}
	values := map[uint64][]*buffer{}
	first := l.count
	slots := l.worker.slots[id]
	for k, i := range c.instructions {
		if l.steps++; l.steps > mostScheduled {
			l.cut = true
			break
		}
		var operands []*buffer
		if len(i.operands) == 1 {
			operands = values[i.operands[0]]
		} else {
			for _, operand := range i.operands {
				operands = append(operands, values[operand]...)
			}
		}
		var s slot
		if k < len(slots) {
			s = slots[k]
		}
		if own, is := l.alias(c, i, parameters, operands); is {
			values[i.id] = own
			if s.times.seconds() > 0 { // the core waits
				all = append(all, l.operation(i, s, operands))
			}
			continue
		}
		at := l.count
		op := l.operation(i, s, operands)
		own := values[i.id]
		arrays := i.shape.arrays(nil)
		passed := l.passed(i, operands, arrays)
		for j, shape := range arrays {
			b := into[made{i.id, j}]
			switch {
			case b != nil:
			case j < len(passed) && passed[j] != nil:
				b = passed[j]
			default:
				if b = l.overwritten(c, i, values, first); b != nil {
					break
				}
				b = &buffer{shape: shape, from: -1, parameter: -1}
				l.buffers = append(l.buffers, b)
			}
			if b != nil && b.from < 0 {
				b.from, b.by, b.origin = at, i, l.module.made(c, i, j)
			}
			if b != nil && b.parameter < 0 && i.opcode != "while" {
				if b.layer = ""; onlyOf(op.Layer, operands) {
					b.layer = op.Layer
				}
			}
			own = append(own, b)
		}
		l.extend(own, at)
		values[i.id] = own
		switch i.opcode {
		case "while":
			op.Iterations = 1
			if rounds, known := l.module.rounds(c, i); known {
				op.Iterations = rounds
			}
			for _, called := range i.called {
				inner := l.module.computations[called]
				if inner == nil {
					continue
				}
				carried := own
				if root := inner.byID[inner.root]; root == nil || root.shape.width() != len(own) {
					carried = nil // the condition
				}
				op.Inside = append(op.Inside, l.computation(called, map[uint64][]*buffer{0: own}, carried, depth+1)...)
			}
		case "call":
			for _, called := range i.called {
				given := map[uint64][]*buffer{}
				for n, operand := range i.operands {
					given[uint64(n)] = values[operand]
				}
				op.Inside = append(op.Inside, l.computation(called, given, own, depth+1)...)
			}
		case "conditional":
			if n, called := l.worker.longest(i); called != 0 {
				given := map[uint64][]*buffer{}
				if n+1 < len(i.operands) {
					given[0] = values[i.operands[n+1]]
				}
				op.Inside = append(op.Inside, l.computation(called, given, own, depth+1)...)
			}
		}
		l.extend(own, l.count-1)
		l.extend(operands, l.count-1)
		all = append(all, op)
	}
	return all
}

// operation adds instruction i as the next operation, with the given operand buffers.
func (l *lives) operation(i *hloInstruction, s slot, operands []*buffer) Operation {
	layer := ""
	if i.origin != nil {
		layer = strings.TrimPrefix(i.origin.Layer, "/")
	}
	if layer == "" {
		layer = cmp.Or(layerOf(operands), l.current)
	}
	l.current = layer
	op := Operation{
		by:     i,
		Number: l.count, Name: i.name, Operation: i.opcode, Source: i.source, Layer: layer, Start: s.start, Beside: s.beside,
		CoreTime: CoreTime{s.times.products, s.times.memory, s.times.interconnect.Exposed, s.times.network.Exposed},
	}
	l.extend(operands, l.count)
	l.count++
	return op
}

// over reports whether an operation can overwrite its operands, element by element.
func over(i *hloInstruction) bool {
	switch i.opcode {
	case "fusion", "all-reduce", "add", "subtract", "multiply", "divide", "maximum", "minimum", "select", "negate", "tanh", "exponential":
		return true
	}
	return false
}

// overwritten returns the buffer of an operand that the result can overwrite: a buffer with the
// shape of the result and without other readers. It returns nil if there is none.
func (l *lives) overwritten(c *hloComputation, i *hloInstruction, values map[uint64][]*buffer, from int) *buffer {
	if !over(i) {
		return nil
	}
	for _, operand := range i.operands {
		own, o := values[operand], c.byID[operand]
		if len(own) != 1 || o == nil || own[0] == nil || own[0].by != o || own[0].result || own[0].from < from || len(c.usesOf(operand)) != 1 {
			continue
		}
		if b := own[0]; b.shape.element == i.shape.element && slices.Equal(b.shape.dims, i.shape.dims) && b.shape.memory == i.shape.memory {
			return b
		}
	}
	return nil
}

// onlyOf reports whether all arrays, except indices, belong to the variables of one layer.
func onlyOf(layer string, operands []*buffer) bool {
	of := false
	for _, b := range operands {
		if b == nil || b.shape.bytes() < memory.MinTemporaryBytes {
			continue
		}
		if b.layer != layer {
			return false
		}
		of = true
	}
	return of
}

// alias returns the buffers of an instruction that allocates no memory and costs no time.
func (l *lives) alias(c *hloComputation, i *hloInstruction, parameters map[uint64][]*buffer, operands []*buffer) (own []*buffer, is bool) {
	switch i.opcode {
	case "parameter":
		return parameters[i.number], true
	case "constant", "after-all", "partition-id", "replica-id":
		return make([]*buffer, i.shape.width()), true
	case "tuple", "bitcast", "opt-barrier", "add-dependency", "domain":
		return operands, true
	case "get-tuple-element":
		if len(i.operands) == 1 && c.byID[i.operands[0]] != nil {
			from := c.byID[i.operands[0]].shape.before(i.index)
			return cutOut(operands, from, i.shape.width()), true
		}
		return nil, true
	case "copy-done":
		l.extend(operands, max(l.count-1, 0))
		return cutOut(operands, 0, i.shape.width()), true
	case "all-gather-done", "collective-permute-done", "async-done", "all-reduce-done", "send-done", "recv-done":
		l.extend(operands, max(l.count-1, 0))
		from := 0
		if len(i.operands) == 1 && c.byID[i.operands[0]] != nil {
			if start := c.byID[i.operands[0]]; start.opcode != "all-reduce-start" && start.opcode != "recv" && len(start.shape.elements) > 1 {
				from = start.shape.before(1)
			}
		}
		return cutOut(operands, from, i.shape.width()), true
	case "async-update":
		return operands, true
	}
	return nil, false
}

// cutOut returns n elements of all starting at from, with nil for missing elements.
func cutOut(all []*buffer, from, n int) []*buffer {
	own := make([]*buffer, n)
	if from < len(all) {
		copy(own, all[from:])
	}
	return own
}

// passed returns the results of an operation that share the memory of its operands.
func (l *lives) passed(i *hloInstruction, operands []*buffer, arrays []hloShape) []*buffer {
	switch i.opcode {
	case "while":
		return operands
	case "dynamic-update-slice":
		return operands[:min(len(operands), 1)]
	case "copy-start":
		return append([]*buffer{nil}, operands...)
	case "all-gather-start", "collective-permute-start", "async-start":
		return operands
	case "fusion":
		return l.updated(i, operands, len(arrays))
	}
	return nil
}

// updated returns the arrays that a fusion updates in place.
func (l *lives) updated(i *hloInstruction, operands []*buffer, arrays int) []*buffer {
	if len(i.called) != 1 || len(operands) != len(i.operands) {
		return nil
	}
	c := l.module.computations[i.called[0]]
	if c == nil {
		return nil
	}
	own := make([]*buffer, arrays)
	for k := range own {
		at := c.byID[c.origin(made{c.root, k}).id]
		if at == nil || at.opcode != "dynamic-update-slice" || len(at.operands) == 0 {
			continue
		}
		if of := c.byID[c.origin(made{at.operands[0], 0}).id]; of != nil && of.opcode == "parameter" && of.number < uint64(len(operands)) {
			own[k] = operands[of.number]
		}
	}
	return own
}

// inUse returns the main memory in use during each operation, and the number of the operation with
// the maximum.
func (l *lives) inUse() (bytes []int64, peak int) { return l.sums((*buffer).bytes) }

// fastMemory is the number of a TPU core's fast memory in layouts.
const fastMemory = 1

// fastAtPeak returns the maximum of main and fast memory together, and the fast memory in use at
// that point.
func (l *lives) fastAtPeak() (fastBytes, both int64) {
	fast := func(b *buffer) int64 {
		if b.shape.memory != fastMemory {
			return 0
		}
		return b.shape.padded()
	}
	sums, peak := l.sums(func(b *buffer) int64 { return b.bytes() + fast(b) })
	all, _ := l.sums(fast)
	return all[peak], sums[peak]
}

// sums returns the sum over the live buffers for each operation, and the number of the operation
// with the maximum.
func (l *lives) sums(of func(b *buffer) int64) (bytes []int64, peak int) {
	change := make([]int64, l.count+1)
	for _, b := range l.buffers {
		if n := of(b); n > 0 && b.from < l.count {
			change[b.from] += n
			change[min(b.to+1, l.count)] -= n
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
