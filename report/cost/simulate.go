package cost

import (
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/report/hlo"
)

// Estimate contains the work of one core in a run of a program, the predicted time and the memory
// use. The operations of a loop count once per iteration.
type Estimate struct {
	// FLOPs and Bytes are the arithmetic operations and the bytes that operations read and write.
	// LoopFLOPs and LoopBytes are the parts of these that iterations of loops after the first add.
	FLOPs, Bytes         float64
	LoopFLOPs, LoopBytes float64
	// RooflineSeconds is the minimum time of the operations in sequence. RooflineFLOPs and
	// RooflineBytes are the arithmetic and the main memory traffic of these operations. Untimed is
	// the number of operations that all three omit.
	RooflineSeconds              float64
	RooflineFLOPs, RooflineBytes float64
	Untimed                      int
	// UnknownLoops is the number of loops with an unknown number of iterations. They count as one
	// iteration.
	UnknownLoops int
	// Prediction is nil for devices that are not TPUs. PeakFLOPS is the published peak of one of the
	// devices of the prediction, in operations per second.
	Prediction *Prediction
	PeakFLOPS  float64
	// Truncated is set if the program is too large to be counted completely. The other fields are
	// then empty.
	Truncated bool
	// Operations and Buffers are empty if the program is empty or too large, see Unscheduled.
	Operations []Operation
	Buffers    []*Buffer
	// Count is the number of operations, including the operations in loops.
	Count int
	// PeakBytes is the maximum main memory in use, during the operation with the number PeakAt. It
	// does not include the code.
	PeakBytes int64
	PeakAt    int
	// FastBytes is the fast memory in use when main and fast memory together are at their maximum,
	// and TotalBytes that maximum.
	FastBytes, TotalBytes int64
	// Unscheduled is set if the program is too large to compute its use of memory.
	Unscheduled bool
}

// fastMemory is the memory space of a TPU core's fast memory.
const fastMemory = 1

// Simulate estimates a run of a program on the slice with the name target. peak is the number of
// operations of a core per second, and rate the number of bytes that a core transfers to or from
// its main memory per second. Both are 0 if they are unknown. layerOf returns the layer of a
// parameter of the program, and may be nil.
func Simulate(p *hlo.Program, target string, peak, rate float64, layerOf func(parameter int) string) *Estimate {
	s := newSlice(target)
	sim := &estimator{program: p, peak: peak, rate: rate, slice: s, known: map[*hlo.Computation]work{},
		slots: map[*hlo.Computation][]slot{}}
	w := sim.total()
	if p.Truncated || sim.truncated {
		return &Estimate{Truncated: true, Unscheduled: true}
	}
	e := &Estimate{
		FLOPs: bounded(w.flops), Bytes: bounded(w.bytes), LoopFLOPs: w.flops - w.once.flops,
		LoopBytes:       w.bytes - w.once.bytes,
		RooflineSeconds: w.seconds, RooflineFLOPs: w.timed.flops, RooflineBytes: w.timed.mainBytes,
		Untimed:      int(min(w.untimed, maxCount)),
		UnknownLoops: w.unknownLoops,
	}
	if s != nil {
		e.Prediction, e.PeakFLOPS = s.prediction(w.times), s.value(peakRate)
	}
	if layerOf == nil {
		layerOf = func(int) string { return "" }
	}
	l := &liveness{program: p, estimator: sim, layerOf: layerOf}
	operations := l.run()
	if e.Unscheduled = l.truncated; l.truncated || l.count == 0 {
		return e
	}
	e.Operations, e.Buffers, e.Count = operations, l.buffers, l.count
	bytes, peakAt := l.inUse(func(b *Buffer) int64 { return b.Bytes })
	e.PeakBytes, e.PeakAt = bytes[peakAt], peakAt
	setInUse(operations, bytes)
	fast := func(b *Buffer) int64 {
		if b.Array.Memory != fastMemory {
			return 0
		}
		return b.Array.PaddedBytes
	}
	both, at := l.inUse(func(b *Buffer) int64 { return b.Bytes + fast(b) })
	inFast, _ := l.inUse(fast)
	e.FastBytes, e.TotalBytes = inFast[at], both[at]
	return e
}

// Predict predicts the time and the memory use of a run of a program on a slice of TPUs, such as
// "v5p:4x4x4" or "2x v6e-256". It needs no client and no plugin. Errors match errors.ErrUnsupported
// for devices that are not TPUs, and [hlo.ErrProgram] for a program that is too large.
func Predict(p *hlo.Program, target string) (*Estimate, error) {
	if newSlice(target) == nil {
		return nil, &errkind.Fault{Op: "report: predict", Subject: fmt.Sprintf("%q", target), Match: errors.ErrUnsupported,
			Reason: "it is not a slice of known TPUs", Hint: "name one such as v5e:4x4"}
	}
	e := Simulate(p, target, 0, 0, nil)
	if e.Truncated {
		return nil, &errkind.Fault{Op: "report: predict", Match: hlo.ErrProgram,
			Reason: "it is too large to count completely"}
	}
	return e, nil
}

// maxCount bounds counts so that their products do not overflow.
const maxCount = 1 << 40
