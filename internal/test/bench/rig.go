package main

import (
	"context"
	"os"
	"slices"

	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// rig opens what a benchmark runs on, and closes it when the benchmark has ended.
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

// later runs c when the benchmark has ended.
func (r *rig) later(c func()) { r.closers = append(r.closers, c) }

// system opens the rig's CPU devices.
func (r *rig) system(ctx context.Context) (*system.System, error) {
	sys, err := system.Open(ctx, system.Options{CPUDevices: r.devices})
	if err == nil {
		r.later(func() { _ = sys.Close() })
	}
	return sys, err
}

// strategy opens the devices as replicas, of opts.LogicalDevices each.
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

// folder makes a temporary folder.
func (r *rig) folder() (string, error) {
	dir, err := os.MkdirTemp("", "bench-")
	if err == nil {
		r.later(func() { _ = os.RemoveAll(dir) })
	}
	return dir, err
}
