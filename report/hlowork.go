package report

import (
	"slices"
	"strings"
)

// work is the work of a core in a part of a program.
type work struct {
	flops   float64
	traffic traffic
	// seconds is the minimum time of the operations in sequence, by the peak and the memory rate of
	// a target. atOnce is the work of these operations. untimed counts the operations that both
	// omit.
	seconds float64
	atOnce  struct{ flops, main float64 }
	untimed float64
	// times are the predicted times, or zero if the devices are unknown.
	times times
	// loops is the number of loops with an unknown number of iterations. They count as one
	// iteration.
	loops int
	// cut is set if the program was too large to count completely.
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

// worker counts the work of a program.
type worker struct {
	reading
	// peak and rate are the target's operations and bytes per second, or 0 if they are unknown.
	peak, rate float64
	// machine is the slice for the predicted times, or nil if it is unknown.
	machine *machine
	// once counts one iteration of each loop, like the cost analysis of compilers.
	once  bool
	known map[uint64]work // by computation
	// slots are the execution times of the instructions of a computation, by computation.
	slots map[uint64][]slot
}

// slot is the time during which an instruction occupies a core, from start on, in seconds since the
// start of the computation, and the transfer that it starts.
type slot struct {
	start  float64
	times  times
	beside *Transfer
}

// work counts the work of a program, and its times on a slice. on may be nil.
func (m *hloModule) work(target Target, once bool, on *machine) work {
	total, _ := m.worked(target, once, on)
	return total
}

// worked returns the work of a program and the worker that counted it.
func (m *hloModule) worked(target Target, once bool, on *machine) (work, *worker) {
	w := &worker{reading: reading{module: m}, peak: target.PeakFLOPS, rate: target.HBMBandwidth, machine: on, once: once,
		known: map[uint64]work{}, slots: map[uint64][]slot{}}
	total := w.computation(m.entry, 0)
	w.wait(&total)
	total.cut = w.cut
	return total, w
}

// wait adds the difference to the floor of the whole program. Copies and other asynchronous
// operations are hidden by other operations, but they share the arithmetic units and the main
// memory of the device with these operations, and nothing exceeds the published rates. The last
// operation waits for the difference.
func (w *worker) wait(total *work) {
	slots := w.slots[w.module.entry]
	if w.machine == nil || len(slots) == 0 {
		return
	}
	products, memory := total.atOnce.flops/w.machine.value(peakRate), total.atOnce.main/w.machine.value(memoryRate)
	var rest times
	if missing := bounded(max(products, memory)) - total.times.seconds(); missing > 0 {
		if products > memory {
			rest.products = missing
		} else {
			rest.memory = missing
		}
	}
	total.times.add(rest, 1)
	slots[len(slots)-1].times.add(rest, 1)
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
	var slots []slot
	for _, i := range c.instructions {
		if w.steps++; w.steps > maxSteps {
			w.cut = true
			break
		}
		before := total.times
		w.instruction(&total, &line, c, i, depth)
		slots = append(slots, slot{before.seconds(), total.times.since(before), line.begun})
		line.begun = nil
	}
	before := total.times
	if line.end(&total.times); len(slots) > 0 {
		slots[len(slots)-1].times.add(total.times.since(before), 1)
	}
	w.slots[id] = slots
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
		// One branch runs: each figure is the maximum over the branches.
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

// longest returns the branch of a conditional that occupies the core for the longest time, or 0 if
// there is none.
func (w *worker) longest(i *hloInstruction) (number int, id uint64) {
	for k, called := range i.called {
		if id == 0 || w.known[called].times.seconds() > w.known[id].times.seconds() {
			number, id = k, called
		}
	}
	return number, id
}

// operation returns the work of an operation that runs as a unit.
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

// predict adds the time of an operation that is not a loop, a branch or a call.
func (w *worker) predict(t *times, line *timeline, c *hloComputation, i *hloInstruction, own work, depth int) {
	now := t.seconds()
	switch {
	case strings.HasSuffix(i.opcode, "-done"):
		if id, begun := line.origin(c, i); begun {
			line.wait(id, t)
		}
	case i.opcode == "send" && i.slices, i.opcode == "custom-call" && slices.Contains(freeCalls, i.target):
		// The receive has the time of the transfer.
	case i.opcode == "recv" && i.slices:
		line.start(i.id, network, w.machine.exchange(i.exchange, float64(i.shape.bytes()), w.machine.slices), now)
	case i.opcode == "send", i.opcode == "recv", i.opcode == "infeed", i.opcode == "outfeed":
		t.missing(i.opcode+" of the host", 1)
	case collectiveKinds[i.opcode] != "":
		seconds, known := w.machine.collective(w.module, c, i, collectiveKinds[i.opcode])
		if !known {
			t.missing(i.opcode, 1)
			return
		}
		line.start(i.id, interconnect, seconds, now)
		if !strings.HasSuffix(i.opcode, "-start") {
			line.wait(i.id, t)
		}
	case i.opcode == "copy-start":
		line.start(i.id, transfers, w.machine.memorySeconds(own.traffic.main), now)
	case slices.Contains(free, i.opcode):
	case i.opcode == "custom-call" && i.cycles == 0:
		w.called(t, i, depth)
	default:
		w.compute(t, c, i, own, depth)
	}
}

// called adds the collectives in the computation of a custom call. The time of other custom calls
// is unknown.
func (w *worker) called(t *times, i *hloInstruction, depth int) {
	var inner times
	for _, id := range i.called {
		inner.add(w.computation(id, depth+1).times, 1)
	}
	if inner.interconnect == (Overlap{}) {
		inner = times{}
		inner.missing("custom-call "+i.target, 1)
	}
	t.add(inner, 1)
}

// compute adds the time of an operation of a core. Collectives in a fusion run concurrently with
// the rest of the fusion.
func (w *worker) compute(t *times, c *hloComputation, i *hloInstruction, own work, depth int) {
	seconds := w.machine.memorySeconds(own.traffic.main)
	work, moved := 0.0, 0.0
	w.eachInside(c, i, depth, func(c *hloComputation, x *hloInstruction) {
		kind := collectiveKinds[x.opcode]
		if kind == "" {
			work += padded(c, x, w.machine.value(tileSize))
			return
		}
		if kind == "all-reduce" && i.shape.bytes() < x.shape.bytes() {
			kind = "reduce-scatter" // the rest of the fusion keeps only a slice
		}
		s, known := w.machine.collective(w.module, c, x, kind)
		if moved += s; !known {
			t.missing(x.opcode, 1)
		}
	})
	if work > 0 {
		seconds = max(seconds, own.flops/w.machine.value(peakRate)) // lower bound for the compiler's estimate
	}
	switch {
	case work > 0 && i.cycles > 0:
		seconds = max(seconds, w.machine.cycleSeconds(i.cycles)*w.machine.value(productTime))
	case work > 0:
		seconds = max(seconds, work/(w.machine.value(peakRate)*w.machine.value(emittedShare))*w.machine.value(productTime))
	case own.traffic.main == 0:
		seconds = w.machine.cycleSeconds(i.cycles)
	}
	seconds, moved = bounded(seconds), bounded(moved)
	hidden := min(seconds, moved)
	took := times{memory: seconds, interconnect: Overlap{Exposed: moved - hidden, Hidden: hidden}}
	if work > 0 {
		took.products, took.memory = seconds, 0
		if i.cycles == 0 {
			took.closed = seconds
		}
	}
	t.add(took, 1)
}
