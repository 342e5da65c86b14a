package report

import (
	"slices"
	"strings"
)

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
	reading
	// peak and rate are the target's operations and bytes a second; 0 if they are not known.
	peak, rate float64
	// machine is what the times are of; nil if it is not known.
	machine *machine
	// once counts each loop for one round, as compilers' own accounts do.
	once  bool
	known map[uint64]work // by computation
	// slots are when each instruction of a computation runs, by computation.
	slots map[uint64][]slot
}

// slot is how long an instruction keeps a core, from start on, in seconds since the computation began,
// and what goes on beside the core from then on.
type slot struct {
	start  float64
	times  times
	beside *Transfer
}

// work counts the work of a program, and its times on a machine, which may be nil.
func (m *hloModule) work(target Target, once bool, on *machine) work {
	total, _ := m.worked(target, once, on)
	return total
}

// worked is the work of a program with the worker that has counted it.
func (m *hloModule) worked(target Target, once bool, on *machine) (work, *worker) {
	w := &worker{reading: reading{module: m}, peak: target.PeakFLOPS, rate: target.HBMBandwidth, machine: on, once: once,
		known: map[uint64]work{}, slots: map[uint64][]slot{}}
	total := w.computation(m.entry, 0)
	w.wait(&total)
	total.cut = w.cut
	return total, w
}

// wait adds what the times lack of the floor of the whole program. Copies and other operations that run
// beside the core are hidden by other operations, but they share the arithmetic and the main memory of the
// device with them, whose published rates nothing exceeds. The last operation waits for the rest.
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

// longest is the branch of a conditional that keeps the core for longest, by its number; 0 without one.
func (w *worker) longest(i *hloInstruction) (number int, id uint64) {
	for k, called := range i.called {
		if id == 0 || w.known[called].times.seconds() > w.known[id].times.seconds() {
			number, id = k, called
		}
	}
	return number, id
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

// predict adds the time of an operation that is not a loop, a branch or a call.
func (w *worker) predict(t *times, line *timeline, c *hloComputation, i *hloInstruction, own work, depth int) {
	now := t.seconds()
	switch {
	case strings.HasSuffix(i.opcode, "-done"):
		if id, begun := line.origin(c, i); begun {
			line.wait(id, t)
		}
	case i.opcode == "send" && i.slices, i.opcode == "custom-call" && slices.Contains(freeCalls, i.target):
		// The receipt has the time of what is sent.
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

// called adds the collectives of what a custom call runs; the time of any other is not known.
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

// compute adds the time of an operation of a core. The collectives in a fusion run beside the rest of
// it.
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
			kind = "reduce-scatter" // as the rest of the fusion keeps a part
		}
		s, known := w.machine.collective(w.module, c, x, kind)
		if moved += s; !known {
			t.missing(x.opcode, 1)
		}
	})
	if work > 0 {
		seconds = max(seconds, own.flops/w.machine.value(peakRate)) // whatever the compiler estimates
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
