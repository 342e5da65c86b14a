// Command multihost trains the classifier of examples/digits on several hosts. By default it
// simulates the hosts as goroutines that share this machine's CPU devices. With -slice, it runs as
// one of the hosts of a TPU slice. Both call runHost for each host. See docs/multihost.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/examples/digits/perceptron"
	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/trainer"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

type config struct {
	*trainer.Flags
	data string
	// slice runs this process as one host of a TPU slice instead of simulating all hosts.
	slice bool
	args  []string // command line, which each simulated host parses again
	// hosts is the number of simulated hosts. missing is the index of a host that is not started,
	// or -1.
	hosts, missing int
	verbose        bool
	hooks          []fit.Hook
	log            *slog.Logger // of the start, with -v
}

func main() { os.Exit(trainer.Main("multihost", run)) }

// run runs the command. The last line of its output is the result as JSON, also after an interrupt.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg, err := parse(args, stderr)
	if err != nil {
		return err
	}
	var outcome trainer.ClassifierResult
	if cfg.slice {
		outcome, err = runOnSlice(ctx, cfg)
	} else {
		outcome, err = simulate(ctx, cfg, stdout, stderr)
	}
	if outcome.Devices == 0 && ctx.Err() != nil { // they were not open yet
		outcome = trainer.ClassifierResult{Replicas: cfg.Replicas, Logical: cfg.Logical, Devices: cfg.Devices,
			Batch: cfg.Batch, Seed: cfg.Seed, Interrupted: true}
	}
	if err != nil && !outcome.Interrupted {
		return err
	}
	return errors.Join(err, outcome.Write(stdout))
}

func parse(args []string, stderr io.Writer) (config, error) {
	cfg := config{args: args, log: slog.New(slog.DiscardHandler)}
	flags := flag.NewFlagSet("multihost", flag.ContinueOnError)
	cfg.Flags = trainer.AddFlags(flags, trainer.Defaults{Steps: 880, Devices: 8})
	flags.BoolVar(&cfg.slice, "slice", false, "run as one host of a TPU slice; start the command on every host")
	flags.IntVar(&cfg.hosts, "hosts", 4, "number of simulated hosts that share the CPU devices")
	flags.IntVar(&cfg.missing, "missing", -1, "index of a simulated host that does not start, or -1")
	flags.DurationVar(&cfg.StartTimeout, "wait", 5*time.Minute,
		"timeout for the start-up, and for a simulated host to wait for another")
	flags.BoolVar(&cfg.verbose, "v", false, "log the steps of the start-up")
	flags.StringVar(&cfg.data, "data", "", "folder of MNIST's files; empty uses 1,797 digits of 8x8 pixels")
	if err := cfg.Parse(args, stderr); err != nil {
		return cfg, err
	}
	cfg.Resume = cfg.Out != "" // a restarted host resumes
	cfg.Flags.Watchdog.CancelDelay = lostTimeout
	if cfg.verbose {
		cfg.log = slog.New(slog.NewTextHandler(stderr, nil))
	}
	wrong := func(name, reason string, args ...any) error {
		return &errkind.Fault{Match: trainer.ErrUsage, Op: "-" + name, Reason: fmt.Sprintf(reason, args...)}
	}
	switch {
	case cfg.StartTimeout <= 0:
		return cfg, wrong("wait", "%v; give a time above 0", cfg.StartTimeout)
	case cfg.slice:
		cfg.Devices = 0
		return cfg, nil
	case cfg.Devices < 1:
		return cfg, wrong("devices", "%d; simulated hosts need CPU devices: give -devices 8, or -slice to run on a TPU",
			cfg.Devices)
	case cfg.hosts < 1 || cfg.Devices%cfg.hosts != 0:
		return cfg, wrong("hosts", "%d hosts cannot share %d devices evenly; give a divisor of the number of devices",
			cfg.hosts, cfg.Devices)
	case cfg.missing < -1 || cfg.missing >= cfg.hosts:
		return cfg, wrong("missing", "%d; give a host from 0 to %d, or -1 for none", cfg.missing, cfg.hosts-1)
	}
	replicas := cfg.Replicas
	if replicas == 0 {
		replicas = cfg.Devices / cfg.Logical
	}
	// Replicas use the devices in order, so the last host is the first one without replicas.
	if used := replicas * cfg.Logical; used <= cfg.Devices-cfg.Devices/cfg.hosts {
		return cfg, wrong("replicas",
			"%d replicas of %d logical devices use %d of the %d devices, and none of the last of %d hosts; "+
				"raise -replicas or -logical, or lower -devices", replicas, cfg.Logical, used, cfg.Devices, cfg.hosts)
	}
	return cfg, nil
}

// lostTimeout is the watchdog's timeout for a host that makes no progress.
const lostTimeout = 30 * time.Second

// runHost runs the program of one host. It opens the devices together with the other hosts, trains
// and tests on the complete slice, and closes the devices.
func runHost(ctx context.Context, cfg config, opts system.Options) (trainer.ClassifierResult, error) {
	c, err := perceptron.New(cfg.data, cfg.Flags)
	if err != nil {
		return trainer.ClassifierResult{}, err
	}
	cfg.System, c.Hooks = &opts, cfg.hooks
	return cfg.Train(ctx, c)
}

// runOnSlice runs this process as one host of a TPU slice. Environment variables and the metadata
// server identify the other hosts.
func runOnSlice(ctx context.Context, cfg config) (trainer.ClassifierResult, error) {
	metadata := clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{Logger: cfg.log})
	return runHost(ctx, cfg, system.Options{
		Plugin:   cfg.Plugin,
		Resolver: clusterresolver.Default(clusterresolver.DefaultOptions{Getenv: os.Getenv, Metadata: metadata}),
		Metadata: metadata,
		Getenv:   os.Getenv,
		Logger:   cfg.log,
	})
}
