// Command digits trains a classifier of handwritten digits on a mesh of replicas and logical
// devices; package job beside it says how. See README.md for what it prints.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/examples/digits/job"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/fit"
	"github.com/tpustrategy/tpustrategy/strategy/fit/bar"
	"github.com/tpustrategy/tpustrategy/strategy/interrupt"
)

func main() { os.Exit(command.Main(run)) }

// run is the command, with all it touches given. It returns the exit code: after an interrupt 75 if
// it has saved, and otherwise that of a shell, 130.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	cfg, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return command.OK
	}
	if err != nil {
		fmt.Fprintln(stderr, "digits:", err)
		return command.Usage
	}
	if cfg.Out != "" {
		defer command.Hold(ctx)() // until it has saved
	}
	if cfg.Devices == 0 { // a TPU VM is told of its maintenance and pre-emption
		noticed, stop := interrupt.Notify(ctx, interrupt.Options{Signals: []os.Signal{}, Metadata: clusterresolver.NewMetadataClient(clusterresolver.MetadataOptions{})})
		defer stop()
		ctx = noticed
	}
	result, err := job.Run(ctx, cfg, job.Hooks{Show: stdout, Compiling: compiling(stderr), Fit: []fit.Hook{bar.New(stderr)}})
	var usage *job.UsageError
	if errors.As(err, &usage) {
		fmt.Fprintln(stderr, "digits:", err)
		return command.Usage
	}
	code := command.OK
	switch {
	case result.Interrupted:
		fmt.Fprintf(stdout, "Interrupted after %d steps.\n", result.Steps)
		if code = interrupt.Code(err); code != interrupt.ExitCode {
			code = command.Cause(ctx).Code()
			break
		}
		fmt.Fprintln(stderr, "digits:", err)
	case err != nil:
		fmt.Fprintln(stderr, "digits:", err)
		return command.Failed
	default:
		fmt.Fprintf(stdout, "Held-out accuracy %.2f %% of %d images, after %d steps in %.1f s (%.0f examples/s).\n",
			*result.Accuracy*100, result.Of, result.Steps, result.Seconds, result.ExamplesPerSecond)
	}
	line, err := json.Marshal(result)
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s\n", line)
	}
	if err != nil {
		fmt.Fprintln(stderr, "digits:", err)
		return command.Failed
	}
	return code
}

// compiling shows that a long compilation goes on.
func compiling(w io.Writer) func(strategy.Compilation) {
	return func(c strategy.Compilation) { fmt.Fprintln(w, "digits:", c) }
}

// parse reads the flags. Its errors are one line each.
func parse(args []string, stderr io.Writer) (job.Config, error) {
	var cfg job.Config
	flags := flag.NewFlagSet("digits", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.IntVar(&cfg.Replicas, "replicas", 4, "number of replicas; each gets an equal part of the batch")
	flags.IntVar(&cfg.Logical, "logical", 2, "number of logical devices of a replica; the hidden layer is split over them")
	flags.IntVar(&cfg.Devices, "devices", 8, "number of CPU devices to make; 0 uses the machine's TPU")
	flags.IntVar(&cfg.Steps, "steps", 0, "number of training steps; 0 takes a number that suits the data")
	flags.IntVar(&cfg.Batch, "batch", 0, "number of examples in a step, over all replicas; 0 takes a number that suits the data")
	flags.Uint64Var(&cfg.Seed, "seed", 1, "seed of the held-out set, the order of the batches and the initial weights")
	flags.StringVar(&cfg.Plugin, "plugin", "", "path of the PJRT plugin; empty finds the installed one")
	flags.StringVar(&cfg.Out, "out", "", "folder or URL for checkpoints; a run goes on from the last one in it, and an interrupted run saves and exits with 75")
	flags.IntVar(&cfg.SaveEvery, "save-every", 0, "number of steps between two checkpoints; 0 is 100")
	flags.StringVar(&cfg.Data, "data", "", "directory of MNIST's IDX files, plain or .gz; empty trains on the digits that the module carries")
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(stderr, "usage: digits [flags]")
		flags.SetOutput(stderr)
		flags.PrintDefaults()
		return cfg, err
	}
	if err == nil && flags.NArg() > 0 {
		err = &errkind.Fault{Op: "command line", Reason: fmt.Sprintf("unexpected argument %q", flags.Arg(0)), Hint: "there are only flags, see -help", Class: errkind.ValueError}
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"replicas", cfg.Replicas}, {"logical", cfg.Logical}} {
		if err == nil && f.value == 0 {
			err = &job.UsageError{Flag: f.name, Reason: "0; give a number from 1"}
		}
	}
	return cfg, err
}
