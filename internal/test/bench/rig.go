package main

import (
	"context"
	"os"
	"slices"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// rig opens the resources of a benchmark and closes them at the end of the benchmark.
type rig struct {
	devices int
	closers []func()
}

func (r *rig) close() {
	for _, c := range slices.Backward(r.closers) {
		c()
	}
	r.closers = nil
}

// later registers a function to call at the end of the benchmark.
func (r *rig) later(c func()) { r.closers = append(r.closers, c) }

func (r *rig) system(ctx context.Context) (*system.System, error) {
	sys, err := system.Open(ctx, system.Options{CPUDevices: r.devices})
	if err == nil {
		r.later(func() { _ = sys.Close() })
	}
	return sys, err
}

// strategy returns a strategy whose replicas use all devices of the rig.
func (r *rig) strategy(ctx context.Context, opts strategy.Options) (*strategy.TPUStrategy, error) {
	sys, err := r.system(ctx)
	if err != nil {
		return nil, err
	}
	opts.Replicas = r.devices / max(opts.LogicalDevices, 1)
	if opts.Compiler == nil {
		opts.Compiler = compiler
	}
	strat, err := strategy.New(sys, opts)
	if err == nil {
		r.later(func() { _ = strat.Close() })
	}
	return strat, err
}

// folder creates a temporary folder.
func (r *rig) folder() (string, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err == nil {
		r.later(func() { _ = os.RemoveAll(dir) })
	}
	return dir, err
}
