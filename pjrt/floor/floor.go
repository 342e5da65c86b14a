package floor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Options configure Measure. The zero value is the default.
type Options struct {
	// Rounds is how often both loops run; 0 means 50. Medians are over rounds.
	Rounds int
	// Steps is the number of launches in one round, after which the loop waits; 0 means 20.
	Steps int
}

// Result is the median time of one step: C of the loop in C, and Go of the loop in Go.
type Result struct {
	C, Go time.Duration
}

// Ratio returns Go divided by C.
func (r Result) Ratio() float64 { return float64(r.Go) / float64(r.C) }

// String returns a text such as "C 3.5µs, Go 3.9µs, ratio 1.11".
func (r Result) String() string { return fmt.Sprintf("C %v, Go %v, ratio %.2f", r.C, r.Go, r.Ratio()) }

// fail is the error of a part of Measure.
func fail(op string, cause error) error { return &errkind.Fault{Op: "floor: " + op, Err: cause} }

// Measure runs the program's C loop and step in turn. state holds the arguments of each launch
// device; each run donates them all and puts the results in their place. step is the body of the Go
// loop.
func Measure(ctx context.Context, x *pjrt.LoadedExecutable, state [][]*pjrt.Buffer, step func() error, o Options) (Result, error) {
	rounds, steps := cmp.Or(o.Rounds, 50), cmp.Or(o.Steps, 20)
	var inC, inGo []time.Duration
	for range rounds {
		took, err := x.Repeat(ctx, state, steps)
		if err != nil {
			return Result{}, fail("run in C", err)
		}
		inC = append(inC, took.Done/time.Duration(steps))
		start := time.Now()
		for range steps {
			if err := step(); err != nil {
				return Result{}, fail("step", err)
			}
		}
		for _, row := range state {
			for _, b := range row {
				if err := b.Ready(ctx); err != nil {
					return Result{}, fail("wait", err)
				}
			}
		}
		inGo = append(inGo, time.Since(start)/time.Duration(steps))
	}
	slices.Sort(inC)
	slices.Sort(inGo)
	return Result{C: inC[len(inC)/2], Go: inGo[len(inGo)/2]}, nil
}
