package main

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// asJAX are the compiler options that JAX 0.10.2 sets for the same plugin, of those that change
// what it makes of a step.
var asJAX = map[string]any{"xla_cpu_experimental_ynn_fusion_type": "LIBRARY_FUSION_TYPE_REDUCE"}

// transformerOn opens R replicas of P logical devices for a decoder.
func transformerOn(ctx context.Context, c transformer.Config, replicas, logicalDevices int, options map[string]any) (*strategy.TPUStrategy, func(), error) {
	sys, err := system.Open(ctx, system.Options{CPUDevices: replicas * logicalDevices})
	if err != nil {
		return nil, nil, err
	}
	opts := c.Options(replicas, logicalDevices)
	opts.CompilerOptions = options
	strat, err := strategy.New(sys, opts)
	if err != nil {
		sys.Close()
		return nil, nil, err
	}
	return strat, func() { strat.Close(); sys.Close() }, nil
}

// transformerStep returns the benchmark of a decoder's training step on a mesh, with the tokens on
// the devices. Each step is awaited. The compiler has the options that it has under JAX.
func transformerStep(replicas, logicalDevices, batch int) func(ctx context.Context, devices int) (row, error) {
	return func(ctx context.Context, _ int) (row, error) {
		c := transformer.Peer()
		c.Batch = batch
		steps := 20
		if effort < 1 {
			c, steps = transformer.Tiny(), 2
			c.Layers = 1
		}
		strat, done, err := transformerOn(ctx, c, replicas, logicalDevices, asJAX)
		if err != nil {
			return row{}, err
		}
		defer done()
		tokens, err := strat.SplitBatch(ctx, c.Tokens(), logical.Annotation{}, false)
		if err != nil {
			return row{}, err
		}
		bound, err := c.Step(strat, model.NewStore()).Bind(ctx, tokens)
		if err != nil {
			return row{}, err
		}
		defer bound.Close()
		short := untilReady(ctx)
		one := func() error {
			if err := bound.Launch(ctx); err != nil {
				return err
			}
			return bound.Results()[0].Ready(short)
		}
		for range 3 {
			if err := one(); err != nil {
				return row{}, err
			}
		}
		var times []time.Duration
		var before, after syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
			return row{}, err
		}
		for range steps {
			start := time.Now()
			if err := one(); err != nil {
				return row{}, err
			}
			times = append(times, time.Since(start))
		}
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
			return row{}, err
		}
		perStep := func(before, after syscall.Timeval) float64 {
			return round((seconds(after) - seconds(before)) / float64(steps) * 1e6)
		}
		user, kernel := perStep(before.Utime, after.Utime), perStep(before.Stime, after.Stime)
		return row{Us: round(median(times)), CPUUs: round(user + kernel),
			Note: fmt.Sprintf("%d x %d, batch %d: processor time of a step %.1f ms user, %.1f ms system", replicas, logicalDevices, c.Batch, user/1e3, kernel/1e3)}, nil
	}
}

// depths are the numbers of layers that depth_loop and depth_unrolled compile.
var depths = []int{2, 12, 48}

// depthLoop is the lowering and the compilation of a decoder's training step of width 256 on
// replicas of 2 logical devices, with its layers in a loop: how what a step costs before it runs
// grows with its layers. The time is that of the compiler for the deepest, and the floor that for
// the shallowest.
func depthLoop(ctx context.Context, devices int) (row, error) { return depthOf(ctx, devices, true) }

// depthUnrolled is the same with one layer after another in the text.
func depthUnrolled(ctx context.Context, devices int) (row, error) {
	return depthOf(ctx, devices, false)
}

func depthOf(ctx context.Context, devices int, loop bool) (row, error) {
	var notes []string
	var compiling []time.Duration
	var cpu time.Duration
	c, all := transformer.Peer(), depths
	if effort < 1 {
		c, all = transformer.Tiny(), []int{1, 2}
	}
	for _, layers := range all {
		c.Layers, c.Batch, c.Loop = layers, 8, loop
		strat, done, err := transformerOn(ctx, c, devices/2, 2, nil)
		if err != nil {
			return row{}, err
		}
		cpu = cpuTime()
		compiled, err := c.Step(strat, model.NewStore()).Compiled(ctx, c.TokensShape())
		if err != nil {
			done()
			return row{}, err
		}
		cpu = cpuTime() - cpu
		notes = append(notes, fmt.Sprintf("%d layers: %d bytes of text, lowering %.3f s, compiling %.2f s, processor %.2f s", layers,
			len(compiled.Module.Text), compiled.Lowering.Seconds(), compiled.Compiling.Seconds(), cpu.Seconds()))
		compiling = append(compiling, compiled.Compiling)
		done()
	}
	us := func(of time.Duration) float64 { return round(float64(of.Nanoseconds()) / 1e3) }
	return row{Us: us(compiling[len(compiling)-1]), FloorUs: us(compiling[0]), CPUUs: us(cpu), Note: strings.Join(notes, "; ")}, nil
}
