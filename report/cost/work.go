package cost

import (
	"strings"

	"github.com/tpustrategy/tpustrategy/report/hlo"
)

type work struct {
	flops, bytes float64
	// once is the part of flops and bytes with one iteration of each loop, like the cost analysis of
	// compilers.
	once struct{ flops, bytes float64 }
	// seconds is the minimum time of the operations in sequence, by the peak and the memory rate of a
	// device. timed is the work of these operations, and untimed the number of the other operations.
	seconds float64
	timed   struct{ flops, mainBytes float64 }
	untimed float64
	// times are the predicted times, or zero if the devices are unknown.
	times times
	// unknownLoops is the number of loops with an unknown number of iterations. They count as one
	// iteration.
	unknownLoops int
}

// add adds work o, which runs n times. Loops count as one iteration in w.once, so w.once increases
// only by one run of o.
func (w *work) add(o work, n float64) {
	w.flops += n * o.flops
	w.bytes += n * o.bytes
	w.once.flops += o.once.flops
	w.once.bytes += o.once.bytes
	w.seconds += n * o.seconds
	w.timed.flops += n * o.timed.flops
	w.timed.mainBytes += n * o.timed.mainBytes
	w.untimed += n * o.untimed
	w.times.add(o.times, n)
	w.unknownLoops += o.unknownLoops
}

// include merges the work of another branch of a conditional into w. Each figure is the maximum
// over the branches, because only one branch runs.
func (w *work) include(o work) {
	w.flops, w.bytes = max(w.flops, o.flops), max(w.bytes, o.bytes)
	w.once.flops, w.once.bytes = max(w.once.flops, o.once.flops), max(w.once.bytes, o.once.bytes)
	w.seconds, w.untimed = max(w.seconds, o.seconds), max(w.untimed, o.untimed)
	w.timed.flops, w.timed.mainBytes = max(w.timed.flops, o.timed.flops), max(w.timed.mainBytes, o.timed.mainBytes)
	w.unknownLoops = max(w.unknownLoops, o.unknownLoops)
	if o.times.seconds() > w.times.seconds() {
		w.times = o.times
	}
}

type estimator struct {
	program *hlo.Program
	// peak and rate are the operations and bytes per second of a device, or 0 if they are unknown.
	peak, rate float64
	// slice is the slice of the predicted times, or nil if it is unknown.
	slice *slice
	known map[*hlo.Computation]work
	// slots are the execution times of the instructions of a computation.
	slots     map[*hlo.Computation][]slot
	steps     int
	truncated bool // the bound on steps was reached
}

// maxSteps and maxDepth bound the walk of a malformed program with recursive calls.
const maxSteps, maxDepth = 1 << 22, 64

// slot is the time during which an instruction occupies a core. start is in seconds since the start
// of the computation. transfer is the asynchronous transfer that the instruction starts, or nil if
// there is none.
type slot struct {
	start    float64
	times    times
	transfer *Transfer
}

func (e *estimator) total() work {
	total := e.computation(e.program.Entry, 0)
	e.addMinimum(&total)
	return total
}

// addMinimum increases the total time if it is less than the time for all arithmetic or for all
// memory traffic at the published rates. This is possible because asynchronous operations are
// hidden by other operations but share the arithmetic units and the main memory with them. The
// difference is added to the last operation.
func (e *estimator) addMinimum(total *work) {
	slots := e.slots[e.program.Entry]
	if e.slice == nil || len(slots) == 0 {
		return
	}
	products, memory := total.timed.flops/e.slice.value(peakRate), total.timed.mainBytes/e.slice.value(memoryRate)
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

func (e *estimator) computation(c *hlo.Computation, depth int) (total work) {
	if known, ok := e.known[c]; ok {
		return known
	}
	if c == nil || depth > maxDepth {
		return work{}
	}
	var line timeline
	var slots []slot
	for _, i := range c.Instructions {
		if e.steps++; e.steps > maxSteps {
			e.truncated = true
			break
		}
		before := total.times
		e.instruction(&total, &line, i, depth)
		slots = append(slots, slot{before.seconds(), total.times.since(before), line.started})
		line.started = nil
	}
	before := total.times
	if line.finish(&total.times); len(slots) > 0 {
		slots[len(slots)-1].times.add(total.times.since(before), 1)
	}
	e.slots[c] = slots
	e.known[c] = total
	return total
}

func (e *estimator) instruction(total *work, line *timeline, i *hlo.Instruction, depth int) {
	switch i.Opcode {
	case "while":
		n := i.Iterations
		if !i.HasIterations {
			n = 1
			total.unknownLoops++
			total.times.addUnknown("rounds of a loop but one", 1)
		}
		for _, called := range i.Called {
			total.add(e.computation(called, depth+1), float64(n))
		}
	case "conditional":
		var longest work
		for _, called := range i.Called {
			longest.include(e.computation(called, depth+1))
		}
		total.add(longest, 1)
	case "call":
		for _, called := range i.Called {
			total.add(e.computation(called, depth+1), 1)
		}
	case "async-start":
		for _, called := range i.Called {
			w := e.computation(called, depth+1)
			line.startAll(i, &w.times, total.times.seconds())
			total.add(w, 1)
		}
	default:
		total.add(e.operation(i), 1)
		if e.slice != nil {
			e.predict(&total.times, line, i, depth)
		}
	}
}

// longestBranch returns the branch of a conditional that occupies the core for the longest time,
// and its index. The branch is nil if there is none.
func (e *estimator) longestBranch(i *hlo.Instruction) (index int, branch *hlo.Computation) {
	for k, called := range i.Called {
		if branch == nil || e.known[called].times.seconds() > e.known[branch].times.seconds() {
			index, branch = k, called
		}
	}
	return index, branch
}

func (e *estimator) operation(i *hlo.Instruction) work {
	w := work{flops: i.FLOPs, bytes: i.BytesAccessed}
	w.once.flops, w.once.bytes = w.flops, w.bytes
	switch {
	case i.Collective != "", i.Opcode == "recv", i.Opcode == "infeed", i.Opcode == "outfeed", i.Opcode == "custom-call" &&
		!i.Free:
		w.untimed = 1
	default:
		w.timed.flops, w.timed.mainBytes = i.FLOPs, i.MainBytes
		if e.peak > 0 && e.rate > 0 {
			w.seconds = max(i.FLOPs/e.peak, i.MainBytes/e.rate)
		}
	}
	return w
}

func (e *estimator) predict(t *times, line *timeline, i *hlo.Instruction, depth int) {
	now := t.seconds()
	switch {
	case strings.HasSuffix(i.Opcode, "-done"):
		if start := line.startOf(i); start != nil {
			line.wait(start, t)
		}
	case i.Opcode == "send" && i.BetweenSlices, i.Opcode == "custom-call" && i.Free:
		// The receive has the time of the transfer.
	case i.Opcode == "recv" && i.BetweenSlices:
		line.start(i, network, e.slice.exchangeSeconds(i.HostCollective, float64(i.Bytes), e.slice.count), now)
	case i.Opcode == "send", i.Opcode == "recv", i.Opcode == "infeed", i.Opcode == "outfeed":
		t.addUnknown(i.Opcode+" of the host", 1)
	case i.Collective != "":
		seconds, known := e.slice.collectiveSeconds(e.program.Devices, i, i.Collective)
		if !known {
			t.addUnknown(i.Opcode, 1)
			return
		}
		line.start(i, interconnect, seconds, now)
		if !strings.HasSuffix(i.Opcode, "-start") {
			line.wait(i, t)
		}
	case i.Opcode == "copy-start":
		line.start(i, transfers, e.slice.memorySeconds(i.MainBytes), now)
	case i.Free:
	case i.Opcode == "custom-call" && i.Cycles == 0:
		e.customCall(t, i, depth)
	default:
		e.compute(t, i)
	}
}

// customCall adds the time of the collectives in a custom call. If the custom call contains no
// collectives, its time is unknown.
func (e *estimator) customCall(t *times, i *hlo.Instruction, depth int) {
	var inner times
	for _, called := range i.Called {
		inner.add(e.computation(called, depth+1).times, 1)
	}
	if inner.interconnect == (Overlap{}) {
		inner = times{}
		inner.addUnknown("custom-call "+i.Target, 1)
	}
	t.add(inner, 1)
}

// compute adds the time of an operation that runs on a core. If the operation is a fusion with
// collectives, the collectives run concurrently with the rest of the fusion.
func (e *estimator) compute(t *times, i *hlo.Instruction) {
	seconds := e.slice.memorySeconds(i.MainBytes)
	flops, communication := 0.0, 0.0
	for _, x := range i.Inside {
		kind := x.Collective
		if kind == "" {
			flops += x.PaddedFLOPs(e.slice.value(tileSize))
			continue
		}
		if kind == "all-reduce" && i.Bytes < x.Bytes {
			kind = "reduce-scatter" // the rest of the fusion uses only a slice
		}
		s, known := e.slice.collectiveSeconds(e.program.Devices, x, kind)
		if communication += s; !known {
			t.addUnknown(x.Opcode, 1)
		}
	}
	if flops > 0 {
		seconds = max(seconds, i.FLOPs/e.slice.value(peakRate)) // lower bound for the compiler's estimate
	}
	switch {
	case flops > 0 && i.Cycles > 0:
		seconds = max(seconds, e.slice.cycleSeconds(i.Cycles)*e.slice.value(productTime))
	case flops > 0:
		seconds = max(seconds, flops/(e.slice.value(peakRate)*e.slice.value(emittedShare))*e.slice.value(productTime))
	case i.MainBytes == 0:
		seconds = e.slice.cycleSeconds(i.Cycles)
	}
	seconds, communication = bounded(seconds), bounded(communication)
	hidden := min(seconds, communication)
	own := times{memory: seconds, interconnect: Overlap{Exposed: communication - hidden, Hidden: hidden}}
	if flops > 0 {
		own.products, own.memory = seconds, 0
		if i.Cycles == 0 {
			own.closed = seconds
		}
	}
	t.add(own, 1)
}
