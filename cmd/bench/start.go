package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// lower is the trace of the MLP's training step, gradients and update included, and its lowering to
// text.
func lower(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	var note string
	mlp, err := newMLP(strat)
	if err != nil {
		return row{}, err
	}
	m, err := measure(2*time.Second, 1, func() error {
		text, err := mlp.step.Lowered(ctx, mlp.x, mlp.y)
		if err == nil {
			note = fmt.Sprintf("%d bytes of text", len(text.Text))
		}
		return err
	}, func() error { return nil })
	return row{Us: m.us, Allocs: m.allocs, Note: note}, err
}

// compile is the plugin's compilation of that text.
func compile(ctx context.Context, devices int) (row, error) {
	strat, done, err := open(ctx, devices)
	if err != nil {
		return row{}, err
	}
	defer done()
	mlp, err := newMLP(strat)
	if err != nil {
		return row{}, err
	}
	compiled, err := mlp.step.Compiled(ctx, mlp.x, mlp.y)
	if err != nil {
		return row{}, err
	}
	client := strat.System().Client()
	opts := compileOptions(strat, compiled.Module)
	m, err := measure(3*time.Second, 1, func() error {
		x, err := client.Compile(ctx, pjrt.Program{Code: compiled.Module.Text, Trusted: true}, opts)
		if err != nil {
			return err
		}
		return x.Close()
	}, func() error { return nil })
	return row{Us: m.us, Allocs: m.allocs}, err
}

func compileOptions(strat *strategy.TPUStrategy, m *spmd.Module) pjrt.CompileOptions {
	var ids []int
	for _, replica := range strat.DeviceAssignment().DeviceIDs() {
		ids = append(ids, replica...)
	}
	return pjrt.CompileOptions{
		Replicas: m.Replicas, Partitions: m.Partitions, DeviceAssignment: slices.Collect(slices.Chunk(ids, m.Partitions)),
		SPMD: m.Partitions > 1, Shardy: m.Partitions > 1,
	}
}

// firstStep is a process from its start to its first finished training step.
func firstStep(ctx context.Context, devices int) (row, error) {
	return startProcess(ctx, "compile")
}

// firstStepCached is the same with the compiled step in a cache directory.
func firstStepCached(ctx context.Context, devices int) (row, error) {
	dir, err := os.MkdirTemp("", "bench-cache-")
	if err != nil {
		return row{}, err
	}
	defer os.RemoveAll(dir)
	return startProcess(ctx, "cache="+dir)
}

// startProcess times child processes from outside.
func startProcess(ctx context.Context, mode string) (row, error) {
	self, err := os.Executable()
	if err != nil {
		return row{}, err
	}
	var times []time.Duration
	for i := range rounds(8) {
		start := time.Now()
		cmd := exec.CommandContext(ctx, self, "-child", mode)
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return row{}, &errkind.Fault{Op: "start", Reason: "the child process failed", Err: err, Hint: "see what it printed above"}
		}
		if i > 0 { // the first fills caches: the page cache, and ours
			times = append(times, time.Since(start))
		}
	}
	return row{Us: round(median(times))}, nil
}

// childStep takes one training step of the MLP on 8 devices.
func childStep(ctx context.Context, mode string) error {
	if mode, ok := strings.CutPrefix(mode, "layers="); ok {
		return childLayers(ctx, mode)
	}
	sys, err := system.Open(ctx, system.Options{CPUDevices: 8})
	if err != nil {
		return err
	}
	defer sys.Close()
	opts := strategy.Options{Replicas: 8}
	if dir, ok := strings.CutPrefix(mode, "cache="); ok {
		if opts.Compiler, err = cache.Open(dir, cache.Options{}); err != nil {
			return err
		}
	}
	strat, err := strategy.New(sys, opts)
	if err != nil {
		return err
	}
	defer strat.Close()
	mlp, err := newMLP(strat)
	if err != nil {
		return err
	}
	l, err := mlp.step.Run(ctx, mlp.x, mlp.y)
	if err != nil {
		return err
	}
	_, err = l.Float64(ctx)
	return err
}
