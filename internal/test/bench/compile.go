package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gomlx/gomlx/ml/model"

	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// lower measures tracing the MLP's training step and lowering it to StableHLO text.
func lower(ctx context.Context, r *rig) (row, error) {
	m, err := r.workload(ctx)
	if err != nil {
		return row{}, err
	}
	var note string
	result, err := repeat{turns: 2000, limit: 2 * time.Second, ops: 1}.time(timed(func() error {
		text, err := m.step.Lowered(ctx, m.x, m.y)
		if err == nil {
			note = fmt.Sprintf("%d bytes of text", len(text.Text))
		}
		return err
	}, nil), nil)
	result.Note = note
	return result, err
}

// compile measures the plugin's compilation of the MLP's training step.
func compile(ctx context.Context, r *rig) (row, error) {
	p := mlp()
	return growth(ctx, r, []int{1}, 12, func(ctx context.Context, r *rig, _ int) (*strategy.CompiledStep, error) {
		strat, err := r.strategy(ctx, strategy.Options{})
		if err != nil {
			return nil, err
		}
		step, err := p.step(strat)
		if err != nil {
			return nil, err
		}
		return step.Compiled(ctx, p.x, p.y)
	})
}

// compileVariables compiles a step x+1 of many variables with 8 floats each. It shows how the
// compile time grows with the number of variables.
func compileVariables(ctx context.Context, r *rig) (row, error) {
	return growth(ctx, r, []int{sized(500, 1), sized(1000, 1), sized(2000, 1)}, 3, func(ctx context.Context, r *rig,
		n int) (*strategy.CompiledStep, error) {
		strat, err := r.strategy(ctx, strategy.Options{})
		if err != nil {
			return nil, err
		}
		f, _ := increments(strat, n)
		return f.Compiled(ctx)
	})
}

// depthLoop compiles the training step of a decoder of width 256 with its layers in a loop, on
// replicas of 2 logical devices. It shows how the compile time grows with the number of layers.
func depthLoop(ctx context.Context, r *rig) (row, error) {
	c, depths := transformer.Peer(), []int{2, 12, 48}
	if effort < 1 {
		c, depths = transformer.Tiny(), depths[:1]
	}
	c.Batch, c.Loop = 8, true
	return growth(ctx, r, depths, 1, func(ctx context.Context, r *rig, layers int) (*strategy.CompiledStep, error) {
		c.Layers = layers
		strat, err := r.strategy(ctx, c.Options(0, 2))
		if err != nil {
			return nil, err
		}
		return c.Step(strat, model.NewStore()).Compiled(ctx, c.TokensShape())
	})
}

// growth compiles steps of several sizes without caches and measures the compiler. Us is the time
// of the largest step, FloorUs that of the smallest, and the note lists all times.
func growth(ctx context.Context, r *rig, sizes []int, times int, of func(ctx context.Context, r *rig,
	size int) (*strategy.CompiledStep, error)) (result row, err error) {
	var notes []string
	for _, size := range sizes {
		var compiling, lowering, cpu []float64
		text := 0
		for range sized(times, 1) {
			own := &rig{devices: r.devices}
			before := cpuTime()
			compiled, err := of(ctx, own, size)
			if err == nil {
				compiling, lowering = append(compiling, us(compiled.Compiling)), append(lowering, us(compiled.Lowering))
				cpu, text = append(cpu, us(cpuTime()-before)), len(compiled.Module.Text)
			}
			own.close()
			if err != nil {
				return row{}, err
			}
		}
		result.Us, result.CPUUs = median(compiling), median(cpu)
		if len(notes) == 0 && len(sizes) > 1 {
			result.FloorUs = result.Us
		}
		notes = append(notes, fmt.Sprintf("%d: %d bytes of text, lowering %.3f s, compiling %.2f s, processor %.2f s",
			size, text, median(lowering)/1e6, result.Us/1e6, result.CPUUs/1e6))
	}
	if result.FloorUs > 0 {
		result.Ratio = round(result.Us / result.FloorUs)
	}
	result.Note = strings.Join(notes, "; ")
	return result, nil
}
