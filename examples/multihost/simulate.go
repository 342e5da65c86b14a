package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/examples/digits/job"
	"github.com/tpustrategy/tpustrategy/internal/simhost"
	"github.com/tpustrategy/tpustrategy/strategy/interrupt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// simulate runs all hosts in this process, each on its share of the CPU devices.
func simulate(ctx context.Context, cfg config, logger *slog.Logger, stdout io.Writer) (job.Result, error) {
	outcomes, err := simulateEach(ctx, cfg, logger, func(_ int, opts system.Options) (job.Result, error) {
		cfg := cfg
		cfg.place = cfg.Out
		return runHost(ctx, cfg, opts, job.Hooks{Show: stdout})
	})
	if err != nil {
		return job.Result{}, err
	}
	return tell(cfg, outcomes, stdout)
}

// tell says how each host did, and returns the result of the first.
func tell(cfg config, outcomes []outcome, stdout io.Writer) (job.Result, error) {
	var errs []error
	var stopped error
	for host, o := range outcomes {
		if o.err != nil {
			// Every host refuses the same settings: one error is enough.
			if usage := (*job.UsageError)(nil); errors.As(o.err, &usage) {
				return job.Result{}, usage
			}
			// And all stop after the same step.
			if again := (*interrupt.Error)(nil); errors.As(o.err, &again) {
				stopped = again
				continue
			}
			errs = append(errs, &errkind.Fault{Op: fmt.Sprintf("host %d", host), Err: o.err})
			continue
		}
		if host != cfg.missing {
			fmt.Fprintf(stdout, "Host %d: held-out accuracy %.2f %% of %d images, after %d steps.\n",
				host, *o.result.Accuracy*100, o.result.Of, o.result.Steps)
		}
	}
	first := 0
	if cfg.missing == 0 && cfg.hosts > 1 {
		first = 1
	}
	if len(errs) == 0 && stopped != nil {
		return outcomes[first].result, stopped
	}
	return outcomes[first].result, errors.Join(errs...)
}

// outcome is the result of a host, or its error.
type outcome struct {
	result job.Result
	err    error
}

// simulateEach runs the program of each host at once, with the options by which it opens its
// devices.
func simulateEach(ctx context.Context, cfg config, logger *slog.Logger, program func(host int, opts system.Options) (job.Result, error)) (outcomes []outcome, err error) {
	base, err := job.Open(ctx, system.Options{CPUDevices: cfg.Devices, Plugin: cfg.Plugin})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, base.Close()) }()
	var names, addresses []string
	for i := range cfg.hosts {
		names = append(names, fmt.Sprintf("host %d", i))
		addresses = append(addresses, fmt.Sprintf("host-%d:8476", i))
	}
	cluster, err := simhost.New(base, simhost.Options{Processes: cfg.hosts, Names: names, Patience: cfg.wait})
	if err != nil {
		return nil, err
	}
	spec, err := clusterresolver.NewClusterSpec(map[string][]string{clusterresolver.JobWorker: addresses})
	if err != nil {
		return nil, err
	}
	outcomes = make([]outcome, cfg.hosts)
	var wg sync.WaitGroup
	for i := range cfg.hosts {
		if i == cfg.missing {
			continue
		}
		wg.Go(func() {
			opts := system.Options{
				CPUDevices: cfg.Devices, Connect: cluster.Connect(i),
				Resolver: clusterresolver.Simple{Cluster: clusterresolver.Cluster{
					Spec: spec, Task: clusterresolver.Task{Type: clusterresolver.JobWorker, ID: i}, NumAccelerators: cfg.Devices / cfg.hosts,
				}},
				Getenv: func(string) string { return "" },
			}
			opts.Logger = logger.With("host", i)
			o := &outcomes[i]
			o.result, o.err = program(i, opts)
		})
	}
	wg.Wait()
	return outcomes, nil
}
