package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// effort scales the times, rounds and sizes of the benchmarks. A test reduces it.
var effort = 1.0

// compiler replaces the client's compiler if it is not nil. Only a test sets it.
var compiler pjrt.Compiler

// sized returns n scaled by effort, but at least the given minimum.
func sized(n, least int) int { return max(least, int(float64(n)*effort)) }

// runner runs n operations, waits for the last one to complete, and returns the elapsed time.
type runner func(n int) (time.Duration, error)

// timed returns a runner that calls op n times and then wait, which may be nil.
func timed(op, wait func() error) runner {
	return func(n int) (time.Duration, error) {
		start := time.Now()
		for range n {
			if err := op(); err != nil {
				return 0, err
			}
		}
		if wait != nil {
			if err := wait(); err != nil {
				return 0, err
			}
		}
		return time.Since(start), nil
	}
}

// repeat specifies how often an operation is measured.
type repeat struct {
	turns int           // after a warm-up turn
	limit time.Duration // no turn starts after this time, except the first
	ops   int           // operations per block
	// blocks is the number of blocks of operations per turn, whose median counts. The first of
	// several blocks is ignored, because it loads the code into the processor's caches.
	blocks int
	byCPU  bool // Us and FloorUs are processor times
}

// time measures an operation and its baseline floor, which may be nil, in alternation. The ratio is
// the median over the turns, because the clock frequency of the machine may change between turns.
// The note contains the 95 % confidence interval of the ratio.
func (p repeat) time(ours, floor runner) (r row, err error) {
	runners := []runner{ours}
	if floor != nil {
		runners = append(runners, floor)
	}
	var wall, cpu [2][]float64
	var ratios []float64
	start := time.Now()
	var before, after runtime.MemStats
	turns := sized(p.turns, 1)
	for turn := 0; turn <= turns; turn++ {
		if time.Since(start) > time.Duration(float64(p.limit)*effort) {
			turns = max(turn, 1) // last turn
		}
		var took [2]float64
		for i := range runners {
			k := (turn + i) % len(runners)
			if turn == turns && k == 0 {
				runtime.ReadMemStats(&before)
			}
			w, c, err := p.block(runners[k])
			if err != nil {
				return row{}, err
			}
			if turn == turns && k == 0 {
				runtime.ReadMemStats(&after)
			}
			if took[k] = w; p.byCPU {
				took[k] = c
			}
			if turn > 0 {
				wall[k], cpu[k] = append(wall[k], w), append(cpu[k], c)
			}
		}
		if turn > 0 && took[1] > 0 {
			ratios = append(ratios, took[0]/took[1])
		}
	}
	r = row{Us: median(wall[0]), CPUUs: median(cpu[0]), FloorUs: median(wall[1]), Ratio: median(ratios),
		Allocs: round(float64(after.Mallocs-before.Mallocs) / float64(p.ops*max(p.blocks, 1)))}
	if p.byCPU {
		r.Note = fmt.Sprintf("on the clock %.0f us, the floor %.0f us; ", r.Us, r.FloorUs)
		r.Us, r.FloorUs = r.CPUUs, median(cpu[1])
	}
	if n := len(ratios); n > 0 {
		// confidence interval of the median in ranks, by the normal approximation
		beside := int(math.Ceil(0.98 * math.Sqrt(float64(n))))
		r.Note += fmt.Sprintf("ratio %.3f, 95 %% between %.3f and %.3f", ratios[n/2], ratios[max(n/2-beside, 0)],
			ratios[min(n/2+beside, n-1)])
	}
	return r, nil
}

// block measures the operations of one turn. It returns microseconds per operation.
func (p repeat) block(w runner) (wall, cpu float64, err error) {
	// allocated on the stack, because heap allocations are counted
	walls, cpus := make([]float64, 0, 4), make([]float64, 0, 4)
	for i := range max(p.blocks, 1) {
		before := cpuTime()
		took, err := w(p.ops)
		if err != nil {
			return 0, 0, err
		}
		used := cpuTime() - before
		if i > 0 || p.blocks < 2 {
			walls, cpus = append(walls, us(took)/float64(p.ops)), append(cpus, us(used)/float64(p.ops))
		}
	}
	slices.Sort(walls)
	slices.Sort(cpus)
	return walls[len(walls)/2], cpus[len(cpus)/2], nil
}

// median sorts x and returns its rounded median, or 0 if x is empty.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return round(x[len(x)/2])
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func round(x float64) float64 { return math.Round(x*100) / 100 }

// cpuTime returns the processor time that this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
