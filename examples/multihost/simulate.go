package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// simulate runs all hosts in this process. Each host has a part of the CPU devices. Only the first
// host prints its progress.
func simulate(ctx context.Context, cfg config, stdout, stderr io.Writer) (trainer.ClassifierResult, error) {
	outcomes, err := simulateEach(ctx, cfg, func(host int, opts system.Options) (trainer.ClassifierResult, error) {
		w := stderr
		if host != cfg.firstHost() && !cfg.verbose {
			w = io.Discard
		}
		own, err := cfg.hostConfig(w)
		if err != nil {
			return trainer.ClassifierResult{}, err
		}
		own.Local.Folder = hostFolder(own.Local.Folder, host)
		return runHost(ctx, own, opts)
	})
	if err != nil {
		return trainer.ClassifierResult{}, err
	}
	return printResult(cfg, outcomes, stdout)
}

// hostConfig returns a copy of the configuration for a simulated host.
func (cfg config) hostConfig(w io.Writer) (config, error) {
	own, err := parse(cfg.args, w)
	own.Watchdog.Exit, own.Watchdog.Dir = nil, cfg.Out
	return own, err
}

// hostFolder returns the local folder of a simulated host, or "" if folder is empty.
func hostFolder(folder string, host int) string {
	if folder == "" {
		return ""
	}
	return filepath.Join(folder, fmt.Sprint("host-", host))
}

// firstHost returns the index of the first host that starts.
func (cfg config) firstHost() int {
	if cfg.missing == 0 && cfg.hosts > 1 {
		return 1
	}
	return 0
}

// printResult prints the outcome of each host and returns the outcome of the first host.
func printResult(cfg config, outcomes []outcome, stdout io.Writer) (trainer.ClassifierResult, error) {
	var errs []error
	var stopped error
	var interrupted *interrupt.Error
	for host, o := range outcomes {
		switch {
		case host == cfg.missing:
		case o.err == nil:
			fmt.Fprintf(stdout, "Host %d: %s\n", host, o.ClassifierResult)
		case errkind.KindOf(o.err) == errkind.ValueError:
			return o.ClassifierResult, o.err // every host refuses the same settings: one error is enough
		case errors.As(o.err, &interrupted):
			stopped = o.err // and all stop after the same step
		default:
			errs = append(errs, &errkind.Fault{Op: fmt.Sprintf("host %d", host), Err: o.err})
		}
	}
	if len(errs) == 0 && stopped != nil {
		return outcomes[cfg.firstHost()].ClassifierResult, stopped
	}
	return outcomes[cfg.firstHost()].ClassifierResult, errors.Join(errs...)
}

type outcome struct {
	trainer.ClassifierResult
	err error
}

// simulateEach calls program concurrently for each host, with the options that open the devices of
// that host.
func simulateEach(ctx context.Context, cfg config, program func(host int,
	opts system.Options) (trainer.ClassifierResult, error)) (outcomes []outcome, err error) {
	base, err := system.Open(ctx, system.Options{CPUDevices: cfg.Devices, Plugin: cfg.Plugin})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, base.Close()) }()
	var names, addresses []string
	for i := range cfg.hosts {
		names = append(names, fmt.Sprintf("host %d", i))
		addresses = append(addresses, fmt.Sprintf("host-%d:8476", i))
	}
	cluster, err := simhost.New(base, simhost.Options{Processes: cfg.hosts, Names: names, Patience: cfg.StartTimeout})
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
					Spec: spec, Task: clusterresolver.Task{Type: clusterresolver.JobWorker,
						ID: i}, NumAccelerators: cfg.Devices / cfg.hosts,
				}},
				Getenv: func(string) string { return "" },
				Logger: cfg.log.With("host", i),
			}
			o := &outcomes[i]
			o.ClassifierResult, o.err = program(i, opts)
		})
	}
	wg.Wait()
	return outcomes, nil
}
