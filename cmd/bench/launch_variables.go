package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// launchCounts are how many variables launch_variables launches steps of.
var launchCounts = []int{500, 1000}

// launchVariables is the processor time of a launch of x+1 of many donated variables of 8 floats
// each: what a step costs that does next to nothing with many variables. The floor is the same
// program in a loop in C, which runs ahead as far as the plugin lets it.
func launchVariables(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	var last row
	var notes []string
	for _, n := range launchCounts {
		n = max(1, int(float64(n)*effort))
		if last, err = launchOf(ctx, strat, n); err != nil {
			return row{}, err
		}
		notes = append(notes, fmt.Sprintf("%d: %.0f us, floor %.0f, ratio %.3f, %.2f allocations; %s", n, last.Us, last.FloorUs, last.Ratio, last.Allocs, last.Note))
	}
	last.Note = strings.Join(notes, "; ")
	return last, nil
}

// launchOf times launches of x+1 of n variables, ours and those of the C loop in turn.
func launchOf(ctx context.Context, strat *strategy.TPUStrategy, n int) (r row, err error) {
	short := untilReady(ctx)
	f, store := manyVariablesOf(strat, n)
	bound, err := f.Bind(ctx)
	if err != nil {
		return row{}, err
	}
	defer bound.Close()
	compiled, err := f.Compiled(ctx)
	if err != nil {
		return row{}, err
	}
	x, _ := strat.Variables(store).Lookup(fmt.Sprintf("/x%d", n-1))
	state, release, err := stateOf(ctx, strat, compiled.Executable, n, 8)
	if err != nil {
		return row{}, err
	}
	defer release()
	const steps = 20
	ways := [2]func() error{
		func() error {
			for range steps {
				if err := bound.Launch(ctx); err != nil {
					return err
				}
			}
			return x.Ready(short)
		},
		func() error {
			_, err := compiled.Executable.Repeat(ctx, state, steps)
			return err
		},
	}
	var cpu, wall [2][]time.Duration
	var ratios []float64
	for turn := range rounds(30) {
		var took [2]time.Duration
		for i := range 2 {
			way := (turn + i) % 2
			before, start := cpuTime(), time.Now()
			if err := ways[way](); err != nil {
				return row{}, err
			}
			took[way] = (cpuTime() - before) / steps
			cpu[way], wall[way] = append(cpu[way], took[way]), append(wall[way], time.Since(start)/steps)
		}
		if turn > 1 && took[1] > 0 { // the first are to warm up
			ratios = append(ratios, float64(took[0])/float64(took[1]))
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range steps {
		if err := bound.Launch(ctx); err != nil {
			return row{}, err
		}
	}
	runtime.ReadMemStats(&after)
	slices.Sort(ratios)
	r = row{Us: round(median(cpu[0])), FloorUs: round(median(cpu[1])), Allocs: round(float64(after.Mallocs-before.Mallocs) / steps)}
	if len(ratios) > 0 {
		r.Ratio = round(ratios[len(ratios)/2])
	}
	r.Note = fmt.Sprintf("wall %.0f, floor %.0f", round(median(wall[0])), round(median(wall[1])))
	return r, nil
}

// manyVariablesOf is a step x+1 of n donated variables of 8 floats, and their store.
func manyVariablesOf(strat *strategy.TPUStrategy, n int) (*strategy.Function, *model.Store) {
	store := model.NewStore()
	return strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		for i := range n {
			x := rc.Scope().VariableWithValue(fmt.Sprint("x", i), tensors.FromScalarAndDimensions(float32(0), 8))
			x.SetNodeValue(graph.AddScalar(x.NodeValue(rc.Graph()), 1))
		}
		return nil
	}, strategy.FunctionOptions{Name: "add_one", Store: store}), store
}
