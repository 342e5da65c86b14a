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

// effort is the share of the usual time, rounds and sizes; a test lowers it.
var effort = 1.0

// compiler compiles in place of the devices' client, if it is not nil; a test sets it.
var compiler pjrt.Compiler

// sized is n, or less with less effort.
func sized(n, least int) int { return max(least, int(float64(n)*effort)) }

// way takes n operations, waits until the last of them is done, and returns how long that took.
type way func(n int) (time.Duration, error)

// timed is the way of operations that are timed from here; wait, if there is one, ends when the
// last of them is done.
func timed(op, wait func() error) way {
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

// repeat says how often a way is timed.
type repeat struct {
	turns int           // after one that warms up
	limit time.Duration // the turn that begins after it is the last, but for the first
	ops   int           // that are timed together
	// blocks are timed in a turn, and their median counts. Of several the first does not count: it
	// brings its code back into the processor's caches.
	blocks int
	byCPU  bool // Us and FloorUs are of processor time
}

// time times a way, and in turn with it the floor, if there is one. The ratio is the median over the
// turns, as the machine's clock may change between them. The note tells its 95 % interval: a busy
// machine needs it to tell 2 % from nothing.
func (p repeat) time(ours, floor way) (r row, err error) {
	ways := []way{ours}
	if floor != nil {
		ways = append(ways, floor)
	}
	var wall, cpu [2][]float64
	var ratios []float64
	start := time.Now()
	var before, after runtime.MemStats
	turns := sized(p.turns, 1)
	for turn := 0; turn <= turns; turn++ {
		if time.Since(start) > time.Duration(float64(p.limit)*effort) {
			turns = max(turn, 1) // the last
		}
		var took [2]float64
		for i := range ways {
			k := (turn + i) % len(ways)
			if turn == turns && k == 0 {
				runtime.ReadMemStats(&before)
			}
			w, c, err := p.block(ways[k])
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
		beside := int(math.Ceil(0.98 * math.Sqrt(float64(n)))) // of the median, in ranks: the normal approximation
		r.Note += fmt.Sprintf("ratio %.3f, 95 %% between %.3f and %.3f", ratios[n/2], ratios[max(n/2-beside, 0)], ratios[min(n/2+beside, n-1)])
	}
	return r, nil
}

// block times its operations once, or the blocks of them: microseconds of one operation.
func (p repeat) block(w way) (wall, cpu float64, err error) {
	walls, cpus := make([]float64, 0, 4), make([]float64, 0, 4) // on the stack: allocations are counted
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

// median sorts x and returns its median, rounded; 0 of nothing.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	slices.Sort(x)
	return round(x[len(x)/2])
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

func round(x float64) float64 { return math.Round(x*100) / 100 }

// cpuTime is the processor time that this process has taken.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
