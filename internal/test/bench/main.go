package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/command"
)

// row is one line of the output.
type row struct {
	Name    string  `json:"name"`
	Devices int     `json:"devices"`
	Us      float64 `json:"us"`
	Allocs  float64 `json:"allocs"`
	FloorUs float64 `json:"floor_us,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	// CPUUs is the user and system time of an operation in microseconds.
	CPUUs float64 `json:"cpu_us,omitempty"`
	GBps  float64 `json:"gb_per_s,omitempty"`
	Note  string  `json:"note,omitempty"`
}

// bench is a benchmark on a number of devices.
type bench struct {
	name    string
	devices int
	run     func(ctx context.Context, r *rig) (row, error)
}

var benches = []bench{
	{"add_one", 1, addOne}, {"add_one", 2, addOne}, {"add_one", 8, addOne},
	{"launch_variables_500", 8, launchVariables(500)}, {"launch_variables_1000", 8, launchVariables(1000)},
	{"run_steps_100", 8, runSteps}, {"all_reduce_1MiB", 8, allReduce}, {"h2d", 8, hostToDevice},
	{"mlp_step", 8, mlpStep}, {"mlp_step_feed", 8, mlpStepFeed}, {"mlp_step_prefetch", 8, mlpStepPrefetch},
	{"fit_loop", 1, fitLoop}, {"fit_loop", 8, fitLoop},
	{"lower", 8, lower}, {"compile", 8, compile}, {"compile_variables", 8, compileVariables}, {"depth_loop", 8, depthLoop},
	{"first_values", 1, firstValues}, {"first_values", 8, firstValues},
	{"weights_load", 1, weightsLoad}, {"weights_load", 8, weightsLoad},
	{"checkpoint_save", 1, checkpointSave}, {"checkpoint_save", 8, checkpointSave},
	{"checkpoint_restore", 1, checkpointRestore}, {"checkpoint_restore", 8, checkpointRestore},
	{"transformer_step_1x1_8", 1, transformerStep(1, 8)}, {"transformer_step_1x1_32", 1, transformerStep(1, 32)},
	{"transformer_step_4x2_8", 8, transformerStep(2, 8)}, {"transformer_step_4x2_32", 8, transformerStep(2, 32)},
	{"transformer_step_8x1_8", 8, transformerStep(1, 8)}, {"transformer_step_8x1_32", 8, transformerStep(1, 32)},
	{"global_mlp_step", 1, globalStep(mlp)}, {"global_mlp_step", 8, globalStep(mlp)},
	{"global_transformer_step", 1, globalStep(decoder)}, {"global_transformer_step", 8, globalStep(decoder)},
	{"generate_decode_1", 1, generateDecode(1)}, {"generate_decode_32", 1, generateDecode(32)}, {"generate_decode_32", 8,
		generateDecode(32)},
	{"first_step", 8, firstStep(start{})}, {"first_step_cached", 8, firstStep(start{Cached: true})},
	{"start_cached_4_layers", 1, firstStep(start{Cached: true, Decoder: true})},
	{"start_cached_4_layers", 8, firstStep(start{Cached: true, Decoder: true})},
	{"start_cached_4_layers_loop", 1, firstStep(start{Cached: true, Decoder: true, Loop: true})},
	{"start_cached_4_layers_loop", 8, firstStep(start{Cached: true, Decoder: true, Loop: true})},
}

func main() { os.Exit(command.Main(run)) }

// run runs the command and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	child := flags.String("child", "", "take one step in this process and exit: used by first_step")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: bench [word ...]\n\nRuns the benchmarks whose name contains a word, or all: %s.\n",
			names())
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return command.OK
	} else if err != nil {
		return command.Usage
	}
	var err error
	if *child != "" {
		err = takeStep(ctx, *child)
	} else {
		var chosen []bench
		if chosen, err = choose(flags.Args()); err != nil {
			fmt.Fprintln(stderr, "bench:", err)
			return command.Usage
		}
		err = runAll(ctx, chosen, stdout)
	}
	switch {
	case err == nil:
		return command.OK
	case ctx.Err() != nil: // the benchmark failed because of the cancellation
		if *child == "" { // only the parent process prints the cause
			fmt.Fprintln(stderr, "bench:", command.Cause(ctx))
		}
		return command.Cause(ctx).Code()
	}
	fmt.Fprintln(stderr, "bench:", err)
	return command.Failed
}

// runAll runs the benchmarks and prints the result of each one as soon as it is available.
func runAll(ctx context.Context, chosen []bench, stdout io.Writer) error {
	out := json.NewEncoder(stdout)
	for _, b := range chosen {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r, err := b.measure(ctx)
		if err != nil {
			return &errkind.Fault{Op: fmt.Sprintf("%s on %d devices", b.name, b.devices), Err: err}
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

func (b bench) measure(ctx context.Context) (row, error) {
	r := &rig{devices: b.devices}
	defer r.close()
	result, err := b.run(ctx, r)
	result.Name, result.Devices = b.name, b.devices
	return result, err
}

// choose returns the benchmarks whose name contains one of the words.
func choose(words []string) ([]bench, error) {
	if len(words) == 0 {
		return benches, nil
	}
	var chosen []bench
	for _, b := range benches {
		if slices.ContainsFunc(words, func(word string) bool { return strings.Contains(b.name, word) }) {
			chosen = append(chosen, b)
		}
	}
	for _, word := range words {
		if !slices.ContainsFunc(chosen, func(b bench) bool { return strings.Contains(b.name, word) }) {
			return nil, &errkind.Fault{Op: "choose", Reason: fmt.Sprintf("no benchmark is called %q", word), Hint: "there are " +
				names(), Class: errkind.NotFoundError}
		}
	}
	return chosen, nil
}

func names() string {
	var all []string
	for _, b := range benches {
		all = append(all, b.name)
	}
	return strings.Join(slices.Compact(all), ", ")
}
