package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// variableCounts are how many variables compile_variables compiles steps of.
var variableCounts = []int{500, 1000, 2000}

// compileVariables is the lowering and the compilation of a step x+1 of many variables of 8 floats
// each: how what a step costs before it runs grows with its variables.
func compileVariables(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	var last float64
	var notes []string
	for _, n := range variableCounts {
		if n = int(float64(n) * effort); n < 1 {
			n = 1
		}
		var times []time.Duration
		var lowering, compiling, cpu time.Duration
		for range rounds(3) {
			runtimeBefore := cpuTime()
			compiled, err := compiledVariables(ctx, strat, n)
			if err != nil {
				return row{}, err
			}
			lowering, compiling, cpu = compiled.Lowering, compiled.Compiling, cpuTime()-runtimeBefore
			times = append(times, lowering+compiling)
		}
		last = round(median(times))
		notes = append(notes, fmt.Sprintf("%d: %.2f s (lowering %.3f, compiling %.2f, processor %.2f)",
			n, last/1e6, lowering.Seconds(), compiling.Seconds(), cpu.Seconds()))
	}
	return row{Us: last, Note: strings.Join(notes, "; ")}, nil
}

func compiledVariables(ctx context.Context, strat *strategy.TPUStrategy, n int) (*strategy.Compiled, error) {
	f, _ := manyVariablesOf(strat, n)
	return f.Compiled(ctx)
}

// cpuTime is the processor time that this process has taken.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
