package report

import (
	"math"
	"slices"
	"strings"
)

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
		seconds, known := w.collective(c, i, collectiveKinds[i.opcode])
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
			work += w.machine.padded(c, x)
			return
		}
		if kind == "all-reduce" && i.shape.bytes() < x.shape.bytes() {
			kind = "reduce-scatter" // as the rest of the fusion keeps a part
		}
		s, known := w.collective(c, x, kind)
		if moved += s; !known {
			t.missing(x.opcode, 1)
		}
	})
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

// eachInside visits an operation, or what a fusion runs.
func (w *worker) eachInside(c *hloComputation, i *hloInstruction, depth int, visit func(*hloComputation, *hloInstruction)) {
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

// sublanes is to what tiles pad the rows of an operand.
const sublanes = 8

// padded counts the operations of a matrix product or a convolution as a matrix unit does them, with
// the dimensions that it sums over and puts out filled up to its side; 0 for any other operation.
func (m *machine) padded(c *hloComputation, i *hloInstruction) float64 {
	operand := func(k int) hloShape {
		if k < len(i.operands) && c.byID[i.operands[k]] != nil {
			return c.byID[i.operands[k]].shape
		}
		return hloShape{}
	}
	tile := m.value(tileSize)
	fill := func(n, to float64) float64 { return math.Ceil(max(n, 1)/to) * to / max(n, 1) }
	switch i.opcode {
	case "dot":
		summed := 1.0
		for _, d := range i.product.contracting {
			summed *= operand(0).dim(d)
		}
		rank := uint64(len(i.shape.dims))
		return i.product.dot(operand(0), i.shape) * fill(summed, tile) * fill(i.shape.dim(rank-1), tile) * fill(i.shape.dim(rank-2), sublanes)
	case "convolution":
		p := i.product
		return p.convolution(operand(0), operand(1), i.shape) * fill(operand(0).dim(p.inputFeature), tile) * fill(i.shape.dim(p.outputFeature), tile)
	}
	return 0
}
