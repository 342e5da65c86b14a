package report

import "slices"

// work is what a core does in a part of a program.
type work struct {
	flops   float64
	traffic traffic
	// seconds is the least time of the operations one after another, by the peak and the rate of
	// memory of a target, and atOnce what they do together, without those that untimed counts.
	seconds float64
	atOnce  struct{ flops, main float64 }
	untimed float64
	// times is what a machine takes for them; nothing if no machine is known.
	times times
	// loops are those whose rounds are not known; they count as one round.
	loops int
	// cut says that the program was too large to be counted to its end.
	cut bool
}

func (w *work) add(o work, times float64) {
	w.flops += times * o.flops
	w.traffic.bytes += times * o.traffic.bytes
	w.traffic.main += times * o.traffic.main
	w.seconds += times * o.seconds
	w.atOnce.flops += times * o.atOnce.flops
	w.atOnce.main += times * o.atOnce.main
	w.untimed += times * o.untimed
	w.times.add(o.times, times)
	w.loops += o.loops
}

// worker counts a program's work.
type worker struct {
	module *hloModule
	// peak and rate are the target's operations and bytes a second; 0 if they are not known.
	peak, rate float64
	// machine is what the times are of; nil if it is not known.
	machine *machine
	// once counts each loop for one round, as compilers' own accounts do.
	once  bool
	known map[uint64]work // by computation
	steps int
	cut   bool // it ended before the program
}

// work counts the work of a program, and its times on a machine, which may be nil.
func (m *hloModule) work(target Target, once bool, on *machine) work {
	w := &worker{module: m, peak: target.PeakFLOPS, rate: target.HBMBandwidth, machine: on, once: once, known: map[uint64]work{}}
	total := w.computation(m.entry, 0)
	total.cut = w.cut
	return total
}

func (w *worker) computation(id uint64, depth int) (total work) {
	if known, ok := w.known[id]; ok {
		return known
	}
	c := w.module.computations[id]
	if c == nil || depth > maxDepth {
		return work{}
	}
	var line timeline
	for _, i := range c.instructions {
		if w.steps++; w.steps > maxSteps {
			w.cut = true
			break
		}
		w.instruction(&total, &line, c, i, depth)
	}
	line.end(&total.times)
	w.known[id] = total
	return total
}

func (w *worker) instruction(total *work, line *timeline, c *hloComputation, i *hloInstruction, depth int) {
	switch i.opcode {
	case "while":
		rounds, known := 1, false
		if !w.once {
			if rounds, known = w.module.rounds(c, i); !known {
				rounds = 1
				total.loops++
				total.times.missing("rounds of a loop but one", 1)
			}
		}
		for _, called := range i.called {
			total.add(w.computation(called, depth+1), float64(rounds))
		}
	case "conditional":
		// One of them runs: each figure is that of the branch with the most.
		var most work
		for _, called := range i.called {
			branch := w.computation(called, depth+1)
			most = work{
				flops:   max(most.flops, branch.flops),
				traffic: traffic{max(most.traffic.bytes, branch.traffic.bytes), max(most.traffic.main, branch.traffic.main)},
				seconds: max(most.seconds, branch.seconds), untimed: max(most.untimed, branch.untimed), loops: max(most.loops, branch.loops),
				atOnce: struct{ flops, main float64 }{max(most.atOnce.flops, branch.atOnce.flops), max(most.atOnce.main, branch.atOnce.main)},
				times:  longer(most.times, branch.times),
			}
		}
		total.add(most, 1)
	case "call":
		for _, called := range i.called {
			total.add(w.computation(called, depth+1), 1)
		}
	case "async-start":
		for _, called := range i.called {
			beside := w.computation(called, depth+1)
			line.begin(i.id, &beside.times, total.times.seconds())
			total.add(beside, 1)
		}
	default:
		own := w.operation(c, i, depth)
		total.add(own, 1)
		if w.machine != nil {
			w.predict(&total.times, line, c, i, own, depth)
		}
	}
}

// operation is the work of an operation that runs as one.
func (w *worker) operation(c *hloComputation, i *hloInstruction, depth int) work {
	own := work{flops: w.flops(c, i, depth), traffic: w.traffic(c, i, depth)}
	switch {
	case collectiveKinds[i.opcode] != "", i.opcode == "recv", i.opcode == "infeed", i.opcode == "outfeed",
		i.opcode == "custom-call" && !slices.Contains(freeCalls, i.target):
		own.untimed = 1
	default:
		own.atOnce.flops, own.atOnce.main = own.flops, own.traffic.main
		if w.peak > 0 && w.rate > 0 {
			own.seconds = max(own.flops/w.peak, own.traffic.main/w.rate)
		}
	}
	return own
}

// freeCalls are custom calls that are notes of the compiler to itself.
var freeCalls = []string{"ConcatBitcast", "SliceBitcast", "AllocateBuffer", "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "AssumeGatherIndicesInBound",
	"X64Combine", "X64SplitHigh", "X64SplitLow"}

// free are operations that do nothing, or whose start has been counted.
var free = []string{
	"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "add-dependency", "partition-id", "replica-id", "domain",
	"async-update", "async-done", "copy-done", "send-done", "recv-done", "all-reduce-done", "all-gather-done", "collective-permute-done", "get-dimension-size",
}

// moving are operations that compute nothing.
var moving = []string{
	"copy", "copy-start", "transpose", "reshape", "broadcast", "iota", "pad", "concatenate", "reverse", "slice", "dynamic-slice", "dynamic-update-slice",
	"gather", "custom-call", "infeed", "outfeed", "recv", "send", "rng-get-and-update-state", "rng-bit-generator", "rng", "sort", "bitcast-convert",
	"dynamic-reshape", "tanh", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "power", "rsqrt", "sqrt", "cbrt", "cosine", "sine", "tan",
	"erf", "atan2", // transcendental functions are counted apart
}

// flops counts an operation's arithmetic: two for each product that is summed, one for each element
// otherwise.
func (w *worker) flops(c *hloComputation, i *hloInstruction, depth int) float64 {
	operand := func(k int) hloShape {
		if k < len(i.operands) {
			if o := c.byID[i.operands[k]]; o != nil {
				return o.shape
			}
		}
		return hloShape{}
	}
	switch {
	case i.opcode == "fusion":
		return w.inside(i, depth)
	case i.opcode == "dot":
		return i.product.dot(operand(0), i.shape)
	case i.opcode == "convolution":
		return i.product.convolution(operand(0), operand(1), i.shape)
	case i.opcode == "reduce":
		return max(operand(0).count()-i.shape.count(), 0)
	case i.opcode == "reduce-window", i.opcode == "select-and-scatter":
		n := i.shape.count()
		for _, d := range i.product.window {
			n *= float64(max(d.size, 1))
		}
		return n
	case i.opcode == "scatter":
		return operand(2).count()
	case slices.Contains(free, i.opcode), slices.Contains(moving, i.opcode):
		return 0
	}
	return i.shape.count()
}

// inside counts the arithmetic of what a fusion runs.
func (w *worker) inside(fusion *hloInstruction, depth int) (flops float64) {
	if depth > maxDepth {
		return 0
	}
	for _, id := range fusion.called {
		c := w.module.computations[id]
		if c == nil {
			continue
		}
		for _, i := range c.instructions {
			if w.steps++; w.steps > maxSteps {
				w.cut = true
				return flops
			}
			flops += w.flops(c, i, depth+1)
		}
	}
	return flops
}

// traffic is what an operation reads and writes. What takes or writes a part of a tensor touches
// the part.
func (w *worker) traffic(c *hloComputation, i *hloInstruction, depth int) (t traffic) {
	shape := func(k int) hloShape {
		if k < len(i.operands) {
			if o := c.byID[i.operands[k]]; o != nil {
				return o.shape
			}
		}
		return hloShape{}
	}
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
		return t // the start of one, whose result holds its operands
	}
	return t.plus(i.shape.in())
}

// read is how many bytes of an operand a fusion reads: of one that it only takes parts of, the
// parts.
func (w *worker) read(fusion *hloInstruction, number uint64, whole hloShape, depth int) float64 {
	all := float64(whole.bytes())
	bytes, out := w.readInside(fusion, number, all, depth)
	if out {
		return all
	}
	return min(bytes, all)
}

// readInside is how many of all bytes of an operand the operations in a fusion read, and whether it
// is also, as it is, the fusion's result.
func (w *worker) readInside(fusion *hloInstruction, number uint64, all float64, depth int) (bytes float64, out bool) {
	if len(fusion.called) != 1 || depth > maxDepth {
		return all, false
	}
	c := w.module.computations[fusion.called[0]]
	if c == nil || c.parameters[number] == nil {
		return all, false
	}
	return w.used(c, c.parameters[number].id, all, depth)
}

// used is how many of all bytes of a value the operations of a computation read, and whether the
// value is its result.
func (w *worker) used(c *hloComputation, id uint64, all float64, depth int) (bytes float64, out bool) {
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
		case k == 0 && i.opcode == "dynamic-update-slice": // it is written in place
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

// use is an instruction that takes a value as one of its operands.
type use struct {
	by      *hloInstruction
	operand int
}

// usesOf are the uses of a value in its computation.
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

// written is what a fusion writes: of a tensor that it updates in place, the update.
func (w *worker) written(fusion *hloInstruction, depth int) traffic {
	if len(fusion.called) == 1 {
		if c := w.module.computations[fusion.called[0]]; c != nil {
			return w.result(c, c.root, fusion.shape, depth)
		}
	}
	return fusion.shape.in()
}

func (w *worker) result(c *hloComputation, id uint64, shape hloShape, depth int) (t traffic) {
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
