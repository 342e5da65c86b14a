package report

import "slices"

// reading counts the operations and the traffic of a program, with a bounded number of steps.
type reading struct {
	module *hloModule
	steps  int
	cut    bool // the bound was reached
}

// freeCalls are custom calls without work, which the compiler uses internally.
var freeCalls = []string{"ConcatBitcast", "SliceBitcast", "AllocateBuffer", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "AssumeGatherIndicesInBound",
	"X64Combine", "X64SplitHigh", "X64SplitLow"}

// free are operations without work, or whose start was counted.
var free = []string{
	"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "add-dependency", "partition-id", "replica-id", "domain",
	"async-update", "async-done", "copy-done", "send-done", "recv-done", "all-reduce-done", "all-gather-done", "collective-permute-done", "get-dimension-size",
}

// moving are operations without arithmetic.
var moving = []string{
	"copy", "copy-start", "transpose", "reshape", "broadcast", "iota", "pad", "concatenate", "reverse", "slice", "dynamic-slice", "dynamic-update-slice",
	"gather", "custom-call", "infeed", "outfeed", "recv", "send", "rng-get-and-update-state", "rng-bit-generator", "rng", "sort", "bitcast-convert",
	"dynamic-reshape", "tanh", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power", "rsqrt", "sqrt", "cbrt", "cosine", "sine", "tan",
	"erf", "atan2", // transcendental functions are counted separately
}

// flops counts an operation's arithmetic: two for each product that is summed, and otherwise one
// for each element.
func (w *reading) flops(c *hloComputation, i *hloInstruction, depth int) (flops float64) {
	switch {
	case i.opcode == "fusion":
		w.eachInside(c, i, depth, func(c *hloComputation, i *hloInstruction) { flops += w.flops(c, i, depth) })
		return flops
	case i.opcode == "dot":
		return i.product.dot(c.operand(i, 0), i.shape)
	case i.opcode == "convolution":
		return i.product.convolution(c.operand(i, 0), i.shape)
	case i.opcode == "reduce":
		return max(c.operand(i, 0).count()-i.shape.count(), 0)
	case i.opcode == "reduce-window", i.opcode == "select-and-scatter":
		windows := i.shape
		if i.opcode == "select-and-scatter" {
			windows = c.operand(i, 1) // the gradients, one per window
		}
		return i.product.windows(c.operand(i, 0), windows)
	case i.opcode == "scatter":
		return c.operand(i, 2).count()
	case slices.Contains(free, i.opcode), slices.Contains(moving, i.opcode):
		return 0
	}
	return i.shape.count()
}

// traffic returns the bytes that an operation reads and writes. An operation that reads or writes a
// part of a tensor accesses only that part.
func (w *reading) traffic(c *hloComputation, i *hloInstruction, depth int) (t traffic) {
	shape := func(k int) hloShape { return c.operand(i, k) }
	part := func(of, part hloShape) traffic { return of.moved(float64(part.bytes())) }
	switch i.opcode {
	case "fusion":
		for k := range i.operands {
			t = t.plus(shape(k).moved(w.read(i, uint64(k), shape(k), depth)))
		}
		return t.plus(w.written(i, depth))
	case "slice", "dynamic-slice", "gather":
		return part(shape(0), i.shape).plus(i.shape.in())
	case "dynamic-update-slice":
		return shape(1).in().plus(part(i.shape, shape(1)))
	case "scatter":
		return shape(1).in().plus(shape(2).in()).plus(part(i.shape, shape(2))).plus(part(i.shape, shape(2)))
	case "copy-start": // its result is a tuple of the copy, the original and a flag
		if len(i.shape.elements) > 0 {
			return shape(0).in().plus(i.shape.elements[0].in())
		}
	}
	if slices.Contains(free, i.opcode) || i.opcode == "custom-call" && slices.Contains(freeCalls, i.target) {
		return t
	}
	for k := range i.operands {
		t = t.plus(shape(k).in())
	}
	if len(i.shape.elements) > 0 && collectiveKinds[i.opcode] != "" && i.opcode != collectiveKinds[i.opcode] {
		return t // the start of an asynchronous operation, whose result contains its operands
	}
	return t.plus(i.shape.in())
}

// read returns the number of bytes of an operand that a fusion reads: only the parts, if it reads
// only parts.
func (w *reading) read(fusion *hloInstruction, number uint64, whole hloShape, depth int) float64 {
	all := float64(whole.bytes())
	bytes, out := w.readInside(fusion, number, all, depth)
	if out {
		return all
	}
	return min(bytes, all)
}

// readInside returns how many of all bytes of an operand the operations in a fusion read, and
// whether the operand itself is also a result of the fusion.
func (w *reading) readInside(fusion *hloInstruction, number uint64, all float64, depth int) (bytes float64, out bool) {
	if len(fusion.called) != 1 || depth > maxDepth {
		return all, false
	}
	c := w.module.computations[fusion.called[0]]
	if c == nil || c.parameters[number] == nil {
		return all, false
	}
	return w.used(c, c.parameters[number].id, all, depth)
}

// used returns how many of all bytes of a value the operations of a computation read, and whether
// the value is its result.
func (w *reading) used(c *hloComputation, id uint64, all float64, depth int) (bytes float64, out bool) {
	out = c.root == id
	for _, u := range c.usesOf(id) {
		if w.steps++; w.steps > maxSteps || bytes >= all || depth > maxDepth {
			return all, out
		}
		i, k := u.by, u.operand
		same, part := i.opcode == "bitcast", 0.0
		switch {
		case same:
		case k == 0 && (i.opcode == "slice" || i.opcode == "dynamic-slice" || i.opcode == "gather"):
			part = float64(i.shape.bytes())
		case k == 0 && i.opcode == "dynamic-update-slice": // updated in place
		case i.opcode == "fusion":
			part, same = w.readInside(i, uint64(k), all, depth+1)
		default:
			return all, out
		}
		bytes += part
		if same {
			part, through := w.used(c, i.id, all, depth+1)
			bytes, out = bytes+part, out || through
		}
	}
	return bytes, out
}

// operand returns the shape of an operand, or the zero shape if there is none.
func (c *hloComputation) operand(i *hloInstruction, k int) hloShape {
	if k < len(i.operands) && c.byID[i.operands[k]] != nil {
		return c.byID[i.operands[k]].shape
	}
	return hloShape{}
}

// use is an instruction with the index of an operand.
type use struct {
	by      *hloInstruction
	operand int
}

// usesOf returns the uses of a value in its computation.
func (c *hloComputation) usesOf(id uint64) []use {
	if c.uses == nil {
		c.uses = map[uint64][]use{}
		for _, i := range c.instructions {
			for k, operand := range i.operands {
				c.uses[operand] = append(c.uses[operand], use{i, k})
			}
		}
	}
	return c.uses[id]
}

// written returns the bytes that a fusion writes. For a tensor that it updates in place, these are
// the bytes of the update.
func (w *reading) written(fusion *hloInstruction, depth int) traffic {
	if len(fusion.called) == 1 {
		if c := w.module.computations[fusion.called[0]]; c != nil {
			return w.result(c, c.root, fusion.shape, depth)
		}
	}
	return fusion.shape.in()
}

func (w *reading) result(c *hloComputation, id uint64, shape hloShape, depth int) (t traffic) {
	i := c.byID[id]
	if i == nil || depth > maxDepth {
		return shape.in()
	}
	switch {
	case i.opcode == "tuple" && len(i.operands) == len(shape.elements):
		for k, operand := range i.operands {
			t = t.plus(w.result(c, operand, shape.elements[k], depth+1))
		}
		return t
	case i.opcode == "bitcast" && len(i.operands) == 1:
		return w.result(c, i.operands[0], shape, depth+1)
	case i.opcode == "dynamic-update-slice" && len(i.operands) > 1:
		if update := c.byID[i.operands[1]]; update != nil {
			return shape.moved(float64(update.shape.bytes()))
		}
	case i.opcode == "fusion" && len(i.called) == 1:
		if inner := w.module.computations[i.called[0]]; inner != nil {
			return w.result(inner, inner.root, shape, depth+1)
		}
	}
	return shape.in()
}

// eachInside visits an operation, or the operations in a fusion.
func (w *reading) eachInside(c *hloComputation, i *hloInstruction, depth int, visit func(*hloComputation, *hloInstruction)) {
	if i.opcode != "fusion" {
		visit(c, i)
		return
	}
	if depth > maxDepth {
		return
	}
	for _, id := range i.called {
		inner := w.module.computations[id]
		if inner == nil {
			continue
		}
		for _, x := range inner.instructions {
			if w.steps++; w.steps > maxSteps {
				w.cut = true
				return
			}
			w.eachInside(inner, x, depth+1, visit)
		}
	}
}
