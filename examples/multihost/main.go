// Command multihost trains the digits job of examples/digits on many hosts: on simulated ones,
// which share this machine's CPU devices, as goroutines or, with -processes, as processes; or, with
// -slice, as one of the hosts of a TPU slice. What each host does is the same in all, in runHost.
// See docs/multihost.md.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/examples/digits/job"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/fit"
	"github.com/tpustrategy/tpustrategy/strategy/interrupt"
	"github.com/tpustrategy/tpustrategy/strategy/watchdog"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// config says what to run.
type config struct {
	job.Config
	// slice runs as one host of a TPU slice instead of simulating hosts.
	slice bool
	// processes runs each simulated host as a process of its own: this program with args, and with
	// environ in its environment.
	processes bool
	args      []string
	environ   []string
	// hosts is the number of simulated hosts, and missing one that does not start, -1 for none.
	hosts, missing int
	// wait bounds the start-up, and each wait of a simulated host for another.
	wait    time.Duration
	verbose bool
	// place is where the hosts see each other's records. exit ends the process of a host that waits for
	// ever; nil where the hosts share one.
	place string
	exit  func(code int)
	log   *slog.Logger // of who does not go on, also without -v
}

// quiet is the logger without -v.
var quiet = slog.New(slog.DiscardHandler)

func main() { os.Exit(command.Main(run)) }

// run is the command, with all it touches given. It returns the exit code: 0, 1 for a failure, 2
// for settings that cannot be run, 75 after an interrupt that has saved, or had nothing to save yet,
// and 69 where a host does not go on, which ask to be started again, and 130 or 143 after another
// interrupt. The last line, also after an interrupt, is the result as JSON.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return command.OK
	}
	if err != nil {
		fmt.Fprintln(stderr, "multihost:", err)
		return command.Usage
	}
	cfg.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	logger := quiet
	if cfg.verbose {
		logger = slog.New(slog.NewTextHandler(stderr, nil))
		cfg.log = logger
	}
	if cfg.Out != "" {
		defer command.Hold(ctx)() // until it has saved
	}
	result, err := work(ctx, cfg, logger, stdout, stderr)
	code := interrupt.CodeContext(ctx, err)
	if err != nil {
		usage, text := (*job.UsageError)(nil), strings.ReplaceAll(err.Error(), "\n", "; ") // in one line, which -processes shows
		result.Interrupted = code == interrupt.ExitCode || ctx.Err() != nil
		if ctx.Err() != nil && code != interrupt.ExitCode {
			text = command.Cause(ctx).Error()
		}
		fmt.Fprintln(stderr, "multihost:", text)
		switch {
		case errors.As(err, &usage):
			return command.Usage
		case !result.Interrupted:
			return code
		case result.Devices == 0: // they were not open yet
			result = job.Result{Replicas: cfg.Replicas, Logical: cfg.Logical, Devices: cfg.Devices, Batch: cfg.Batch, Seed: cfg.Seed, Interrupted: true}
		}
	}
	line, err := json.Marshal(result)
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s\n", line)
	}
	if err != nil {
		fmt.Fprintln(stderr, "multihost:", err)
		return command.Failed
	}
	return code
}

// work does what is to be run.
func work(ctx context.Context, cfg config, logger *slog.Logger, stdout, stderr io.Writer) (job.Result, error) {
	host, here, err := prochost.FromEnviron(os.Getenv)
	switch {
	case err != nil:
		return job.Result{}, err
	case here:
		return oneProcess(ctx, cfg, host, logger, stdout)
	case cfg.slice:
		return onSlice(ctx, cfg, logger, stdout)
	case cfg.processes:
		return asProcesses(ctx, cfg, logger, stdout, stderr)
	}
	return simulate(ctx, cfg, logger, stdout)
}

func parse(args []string, stderr io.Writer) (config, error) {
	cfg := config{args: args}
	flags := flag.NewFlagSet("multihost", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&cfg.slice, "slice", false, "run as one host of a TPU slice; start the command on every host of the slice")
	flags.IntVar(&cfg.hosts, "hosts", 4, "number of simulated hosts")
	flags.BoolVar(&cfg.processes, "processes", false, "run each simulated host as a process of its own")
	flags.IntVar(&cfg.missing, "missing", -1, "number of a simulated host that does not start; -1 starts all")
	flags.DurationVar(&cfg.wait, "wait", 5*time.Minute, "longest time for the start-up, and for a simulated host to wait for another")
	flags.BoolVar(&cfg.verbose, "v", false, "log the steps of the start-up")
	flags.IntVar(&cfg.Devices, "devices", 8, "number of CPU devices to make, for all simulated hosts together")
	flags.IntVar(&cfg.Logical, "logical", 2, "number of logical devices of a replica")
	flags.IntVar(&cfg.Replicas, "replicas", 0, "number of replicas; 0 uses all devices")
	flags.IntVar(&cfg.Steps, "steps", 0, "number of training steps; 0 takes a number that suits the data")
	flags.IntVar(&cfg.Batch, "batch", 0, "number of examples in a step, over all hosts; 0 takes a number that suits the data")
	flags.Uint64Var(&cfg.Seed, "seed", 1, "seed of all random choices, the same on every host")
	flags.StringVar(&cfg.Plugin, "plugin", "", "path of the PJRT plugin; empty finds the installed one")
	flags.StringVar(&cfg.Out, "out", "", "folder that all hosts share, or URL, for checkpoints; a run goes on from the last one in it, on any number of hosts, and an interrupted run saves and exits with 75")
	flags.IntVar(&cfg.SaveEvery, "save-every", 0, "number of steps between two checkpoints; 0 is 100")
	flags.StringVar(&cfg.Data, "data", "", "directory of MNIST's IDX files; empty trains on the digits that the module carries")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(stderr, "usage: multihost [flags]")
			flags.SetOutput(stderr)
			flags.PrintDefaults()
		}
		return cfg, err
	}
	switch {
	case flags.NArg() > 0:
		return cfg, &errkind.Fault{Op: "command line", Reason: fmt.Sprintf("unexpected argument %q", flags.Arg(0)), Hint: "there are only flags, see -help", Class: errkind.ValueError}
	case cfg.Logical < 1:
		return cfg, &job.UsageError{Flag: "logical", Reason: fmt.Sprintf("%d; give a number from 1", cfg.Logical)}
	case cfg.slice && cfg.processes:
		return cfg, &job.UsageError{Flag: "processes", Reason: "the hosts of a slice are no simulated ones; leave it out, or -slice"}
	case cfg.wait <= 0:
		return cfg, &job.UsageError{Flag: "wait", Reason: fmt.Sprintf("%v; give a time above 0", cfg.wait)}
	case !cfg.slice && (cfg.Devices < 1 || cfg.hosts < 1 || cfg.Devices%cfg.hosts != 0):
		return cfg, &job.UsageError{Flag: "hosts", Reason: fmt.Sprintf("%d hosts cannot share %d devices evenly; give a number that divides the devices", cfg.hosts, cfg.Devices)}
	case !cfg.slice && (cfg.missing < -1 || cfg.missing >= cfg.hosts):
		return cfg, &job.UsageError{Flag: "missing", Reason: fmt.Sprintf("%d; the hosts are 0 to %d, and -1 stands for none", cfg.missing, cfg.hosts-1)}
	}
	replicas := cfg.Replicas
	if replicas == 0 {
		replicas = cfg.Devices / cfg.Logical
	}
	// Replicas take the devices in order, so that the last host is the first without.
	if used := replicas * cfg.Logical; !cfg.slice && replicas > 0 && used <= cfg.Devices-cfg.Devices/cfg.hosts {
		return cfg, &job.UsageError{Flag: "replicas", Reason: fmt.Sprintf(
			"%d replicas of %d logical devices take %d of the %d devices, and the last of %d hosts has none of them; raise -replicas or -logical, or lower -devices",
			replicas, cfg.Logical, used, cfg.Devices, cfg.hosts)}
	}
	return cfg, nil
}

// lostAfter is how long a host that is known not to go on is waited for.
const lostAfter = 30 * time.Second

// runHost is what each host does: open its devices together with the others, train and test on all
// of the slice, and shut down.
func runHost(ctx context.Context, cfg config, opts system.Options, hooks job.Hooks) (result job.Result, err error) {
	defer func() { err = job.Again(ctx, cfg.Config, result, err) }()
	starting, cancel := context.WithTimeoutCause(ctx, cfg.wait, &errkind.Fault{Op: "start", Reason: "not all hosts were there after " + cfg.wait.String(), Err: context.DeadlineExceeded})
	defer cancel()
	sys, err := system.Open(starting, opts)
	if err != nil {
		return result, err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		err = errors.Join(err, sys.Shutdown(closing))
	}()
	if cfg.Replicas == 0 {
		cfg.Replicas = sys.Topology().NumDevices() / cfg.Logical
	}
	data, err := job.Load(cfg.Config)
	if err != nil {
		return result, err
	}
	if sys.Process() != 0 {
		hooks.Show = nil // one host tells
	}
	if sys.NumProcesses() > 1 { // a host that waits for another does not wait for ever
		hooks.Fit = append(hooks.Fit, fit.Watch(watchdog.Options{Place: cfg.place, Patience: lostAfter, Exit: cfg.exit, Logger: cfg.log}))
	}
	return job.Train(ctx, sys, cfg.Config, data, hooks)
}

// onSlice is one host of a TPU slice.
func onSlice(ctx context.Context, cfg config, logger *slog.Logger, stdout io.Writer) (job.Result, error) {
	metadata := clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{Logger: logger})
	// Beside the signals: maintenance and pre-emption of this host end the run on all of them.
	ctx, stop := interrupt.Notify(ctx, interrupt.Options{Signals: []os.Signal{}, Metadata: metadata, Logger: logger})
	defer stop()
	cfg.place, cfg.exit = cfg.Out, os.Exit
	return runHost(ctx, cfg, system.Options{
		Plugin:   cfg.Plugin,
		Resolver: clusterresolver.Default(clusterresolver.DefaultOptions{Getenv: os.Getenv, Metadata: metadata}),
		Metadata: metadata,
		Getenv:   os.Getenv,
		Logger:   logger,
	}, job.Hooks{Show: stdout, Compiling: func(c strategy.Compilation) { logger.Info(c.String()) }})
}
