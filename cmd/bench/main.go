// Command bench measures the module on the XLA CPU plugin and prints one JSON object a line: name,
// devices, us (median microseconds), allocs (Go heap allocations an operation), and floor_us where
// there is a floor, measured in turn in the same run. See docs/benchmarks.md for what each name
// means.
//
//	go run ./cmd/bench            all
//	go run ./cmd/bench add_one    those whose name contains a word
//
// Exit codes: 0 done, 1 a benchmark failed, 2 wrong usage, 130 interrupted (143 by SIGTERM), after
// the lines of what was done.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/command"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// row is one line of output.
type row struct {
	Name    string  `json:"name"`
	Devices int     `json:"devices"`
	Us      float64 `json:"us"`
	Allocs  float64 `json:"allocs"`
	FloorUs float64 `json:"floor_us,omitempty"`
	Ratio   float64 `json:"ratio,omitempty"`
	// CPUUs is the processor time of an operation, in user mode and in the kernel.
	CPUUs float64 `json:"cpu_us,omitempty"`
	GBps  float64 `json:"gb_per_s,omitempty"`
	Note  string  `json:"note,omitempty"`
}

// bench is one benchmark on a number of devices.
type bench struct {
	name    string
	devices int
	run     func(ctx context.Context, devices int) (row, error)
}

var benches = []bench{
	{"add_one", 1, addOne}, {"add_one", 2, addOne}, {"add_one", 8, addOne},
	{"execute_return", 1, executeReturn}, {"execute_return", 2, executeReturn}, {"execute_return", 8, executeReturn},
	{"all_reduce_1MiB", 8, allReduce},
	{"mlp_step", 8, mlpStep}, {"mlp_step_feed", 8, mlpStepFeed}, {"mlp_step_prefetch", 8, mlpStepPrefetch},
	{"run_steps_100", 8, runSteps}, {"fit_loop", 1, fitLoop}, {"fit_loop", 8, fitLoop},
	{"h2d", 8, hostToDevice},
	{"lower", 8, lower}, {"compile", 8, compile}, {"compile_variables", 8, compileVariables},
	{"launch_variables", 8, launchVariables},
	{"first_values", 1, firstValues}, {"first_values", 8, firstValues},
	{"weights_load_stored", 1, weightsLoad("F32", false)}, {"weights_load_stored", 8, weightsLoad("F32", false)},
	{"weights_load_f32", 1, weightsLoad("F32", true)}, {"weights_load_f32", 8, weightsLoad("F32", true)},
	{"weights_load_bf16", 1, weightsLoad("BF16", true)}, {"weights_load_bf16", 8, weightsLoad("BF16", true)},
	{"checkpoint_save", 1, checkpointSave}, {"checkpoint_save", 8, checkpointSave},
	{"checkpoint_blocked", 1, checkpointBlocked}, {"checkpoint_blocked", 8, checkpointBlocked},
	{"checkpoint_restore", 1, checkpointRestore}, {"checkpoint_restore", 8, checkpointRestore},
	{"transformer_step_1x1_8", 1, transformerStep(1, 1, 8)}, {"transformer_step_1x1_32", 1, transformerStep(1, 1, 32)},
	{"transformer_step_4x2_8", 8, transformerStep(4, 2, 8)}, {"transformer_step_4x2_32", 8, transformerStep(4, 2, 32)},
	{"transformer_step_8x1_8", 8, transformerStep(8, 1, 8)}, {"transformer_step_8x1_32", 8, transformerStep(8, 1, 32)},
	{"global_mlp_step", 1, globalStep(globalMLP)}, {"global_mlp_step", 8, globalStep(globalMLP)},
	{"global_transformer_step", 1, globalStep(globalTransformer)}, {"global_transformer_step", 8, globalStep(globalTransformer)},
	{"generate_decode", 1, generateDecode(1, 1)}, {"generate_decode", 8, generateDecode(4, 2)},
	{"depth_loop", 8, depthLoop}, {"depth_unrolled", 8, depthUnrolled},
	{"first_step", 8, firstStep}, {"first_step_cached", 8, firstStepCached},
	{"start_cached_4_layers", 1, startLayers(1, 1, false)}, {"start_cached_4_layers", 8, startLayers(4, 2, false)},
	{"start_cached_4_layers_loop", 1, startLayers(1, 1, true)}, {"start_cached_4_layers_loop", 8, startLayers(4, 2, true)},
}

func main() { os.Exit(command.Main(run)) }

// run is the command, with all it touches given. It returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	child := flags.String("child", "", "take one step in this process and exit: used by first_step")
	flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: bench [word ...]\n\nRuns the benchmarks whose name contains a word, or all: %s.\n", names())
	}
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return command.OK
	} else if err != nil {
		return command.Usage
	}
	var err error
	if *child != "" {
		err = childStep(ctx, *child)
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
	case ctx.Err() != nil: // whatever was under way failed for it
		if *child == "" { // the parent speaks for its children
			fmt.Fprintln(stderr, "bench:", command.Cause(ctx))
		}
		return command.Cause(ctx).Code()
	}
	fmt.Fprintln(stderr, "bench:", err)
	return command.Failed
}

// runAll prints a line for each benchmark when it is done.
func runAll(ctx context.Context, chosen []bench, stdout io.Writer) error {
	out := json.NewEncoder(stdout)
	for _, b := range chosen {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		r, err := b.run(ctx, b.devices)
		if err != nil {
			return &errkind.Fault{Op: fmt.Sprintf("%s on %d devices", b.name, b.devices), Err: err}
		}
		r.Name, r.Devices = b.name, b.devices
		if r.FloorUs > 0 && r.Ratio == 0 {
			r.Ratio = round(r.Us / r.FloorUs)
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// choose returns the benchmarks whose name contains a word, in their order.
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
			return nil, &errkind.Fault{Op: "choose", Reason: fmt.Sprintf("no benchmark is called %q", word), Hint: "there are " + names(), Class: errkind.NotFoundError}
		}
	}
	return chosen, nil
}

// names lists the benchmarks.
func names() string {
	var all []string
	for _, b := range benches {
		all = append(all, b.name)
	}
	return strings.Join(slices.Compact(all), ", ")
}

// untilReady is ctx for waits of a few milliseconds, which need no way out: a wait that can be
// broken off costs some allocations.
func untilReady(ctx context.Context) context.Context { return context.WithoutCancel(ctx) }

// open opens n CPU devices as n replicas.
func open(ctx context.Context, n int) (*strategy.TPUStrategy, func(), error) {
	sys, err := system.Open(ctx, system.Options{CPUDevices: n})
	if err != nil {
		return nil, nil, err
	}
	strat, err := strategy.New(sys, strategy.Options{Replicas: n})
	if err != nil {
		sys.Close()
		return nil, nil, err
	}
	return strat, func() { strat.Close(); sys.Close() }, nil
}

// effort is the share of the usual time and rounds; a test lowers it.
var effort = 1.0

// rounds is n, or less with less effort: two at least, one to warm up.
func rounds(n int) int { return max(2, int(float64(n)*effort)) }

// measured is the median time of an operation and its allocations.
type measured struct {
	us, allocs float64
}

// measure times rounds of n operations, each ended by wait, for about the given time, after one
// round of warming up.
func measure(d time.Duration, n int, op func() error, wait func() error) (measured, error) {
	once := func() (time.Duration, error) {
		start := time.Now()
		for range n {
			if err := op(); err != nil {
				return 0, err
			}
		}
		if err := wait(); err != nil {
			return 0, err
		}
		return time.Since(start), nil
	}
	if _, err := once(); err != nil {
		return measured{}, err
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var times []time.Duration
	for end := time.Now().Add(time.Duration(float64(d) * effort)); time.Now().Before(end) || len(times) < 3; {
		t, err := once()
		if err != nil {
			return measured{}, err
		}
		times = append(times, t)
	}
	runtime.ReadMemStats(&after)
	return measured{
		us:     round(median(times) / float64(n)),
		allocs: round(float64(after.Mallocs-before.Mallocs) / float64(len(times)*n)),
	}, nil
}

// median of durations, in microseconds.
func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2].Nanoseconds()) / 1e3
}

func round(x float64) float64 {
	return float64(int64(x*100+0.5)) / 100
}
