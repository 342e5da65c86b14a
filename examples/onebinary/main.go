// Command onebinary is a training program with embedded compiled steps. To run, it needs only the
// plugin and the C library: no compiler, no Python, no Go, and no other files.
//
//	onebinary -topology cpu:8 -save examples/onebinary/steps/cpu-8.step   # on a desk: compile
//	go build ./examples/onebinary                                         # the steps go inside
//	./onebinary -devices 8                                                # elsewhere: run
//
// A step for a slice is compiled on a machine without a TPU, and runs where the slice is. See
// docs/one-binary.md.
package main

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"syscall"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/aot"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// steps are the compiled steps, one file for each topology. `make onebinary` writes them.
//
//go:embed steps
var steps embed.FS

var startTime = time.Now()

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

type config struct {
	devices, steps int
	plugin         string
}

// Result is the result that the program prints as JSON in its last line.
type Result struct {
	// Step is the embedded step that fits the devices.
	Step    string `json:"step"`
	Devices int    `json:"devices"`
	Steps   int    `json:"steps"`
	// Compiled is the number of programs that were compiled here.
	Compiled int `json:"compiled"`
	// Times from the start of the process until the devices were open, the step was loaded, and the
	// first step was complete.
	OpenedSeconds    float64 `json:"opened_seconds"`
	LoadedSeconds    float64 `json:"loaded_seconds"`
	FirstStepSeconds float64 `json:"first_step_seconds"`
	FirstLoss        float64 `json:"first_loss"`
	LastLoss         float64 `json:"last_loss"`
}

// run runs the command and returns its exit code: 0, 1 for a failure, or 2 for an invalid command
// line.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var cfg config
	fs := flag.NewFlagSet("onebinary", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.IntVar(&cfg.devices, "devices", 0, "number of CPU devices; 0 uses the TPU of this machine")
	fs.IntVar(&cfg.steps, "steps", 100, "number of training steps")
	fs.StringVar(&cfg.plugin, "run-plugin", "", "path of the PJRT plugin to run on; empty uses the installed one")
	compile := aot.AddFlags(fs)
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if compile.Requested() {
		return compile.Main(ctx, options(compile.Logical), build)
	}
	if fs.NArg() > 0 || cfg.devices < 0 || cfg.steps < 1 {
		fmt.Fprintln(stderr, "onebinary: give -devices from 0 and -steps from 1, and no other arguments")
		return 2
	}
	result, err := trainEmbedded(ctx, cfg)
	if err == nil {
		err = json.NewEncoder(stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(stderr, "onebinary:", err)
		return 1
	}
	return 0
}

// build returns the step that is compiled ahead of time, and the shapes of its batch.
func build(s *strategy.TPUStrategy) (aot.Step, []any, error) {
	step, err := newStep(s)
	return step, []any{shapes.Make(dtypes.Float32, batch, features), shapes.Make(dtypes.Float32, batch, 1)}, err
}

// trainEmbedded trains with the embedded step that was compiled for the devices that this host has.
func trainEmbedded(ctx context.Context, cfg config) (r Result, err error) {
	sys, err := system.Open(ctx, system.Options{CPUDevices: cfg.devices, Plugin: cfg.plugin})
	if errors.Is(err, system.ErrNoTPU) {
		return r, errors.New("this host has no TPU; give -devices 8 to run on 8 CPU devices")
	}
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.Close()) }()
	r.OpenedSeconds = time.Since(startTime).Seconds()
	opts := options(1)
	opts.Compiler = noCompiler{&r.Compiled}
	strat, err := strategy.New(sys, opts)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, strat.Close()) }()
	step, name, err := load(ctx, strat, steps)
	if err != nil {
		return r, err
	}
	r.Step, r.Devices, r.LoadedSeconds = name, sys.Topology().NumDevices(), time.Since(startTime).Seconds()
	for ; r.Steps < cfg.steps; r.Steps++ {
		x, y := newBatch(r.Steps)
		loss, err := step.Run(ctx, x, y)
		if err != nil {
			return r, err
		}
		if first := r.Steps == 0; first || r.Steps == cfg.steps-1 {
			if r.LastLoss, err = loss.Float64(ctx); err != nil {
				return r, err
			}
			if first {
				r.FirstLoss, r.FirstStepSeconds = r.LastLoss, time.Since(startTime).Seconds()
			}
		}
	}
	return r, nil
}

// load loads the first embedded step that can run on the devices of the strategy. If no step can
// run on them, the error contains the reason for each step.
func load(ctx context.Context, s *strategy.TPUStrategy, from embed.FS) (*train.Step, string, error) {
	entries, err := from.ReadDir("steps")
	if err != nil {
		return nil, "", err
	}
	var unfit []error
	for _, entry := range entries {
		if path.Ext(entry.Name()) != ".step" {
			continue
		}
		file, err := from.Open(path.Join("steps", entry.Name()))
		if err != nil {
			return nil, "", err
		}
		step, err := stepfile.LoadTrain(ctx, s, file, newStore())
		file.Close()
		if err == nil {
			return step, entry.Name(), nil
		}
		unfit = append(unfit, fmt.Errorf("%s: %w", entry.Name(), err))
	}
	return nil, "", &errkind.Fault{Op: "onebinary", Reason: fmt.Sprintf("none of the %d embedded steps fits %s",
		len(unfit), s.System().Topology()),
		Hint: "compile a step for it with -topology and -save into examples/onebinary/steps, and build again",
		Err:  errors.Join(unfit...)}
}

// noCompiler is a compiler that always returns an error and counts its calls, because this program
// must not compile when it runs.
type noCompiler struct{ compileCount *int }

func (c noCompiler) Compile(context.Context, *pjrt.Client, pjrt.Program, pjrt.CompileOptions) (*pjrt.LoadedExecutable,
	error) {
	*c.compileCount++
	return nil, &errkind.Fault{Op: "onebinary", Reason: "the call needs a program that is not embedded",
		Hint: "call only the embedded steps", Class: errkind.FailedPreconditionError}
}
