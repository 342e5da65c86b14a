package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// A language model of 162 million parameters: the tokens' table and the output's weights, and
// twelve blocks.
const (
	firstVocabulary = 50257
	firstWidth      = 768
	firstBlocks     = 12
)

// firstValues is the making of the first values of a language model's variables on one device, if
// devices is 1, otherwise on replicas of two logical devices each that hold half of every matrix.
func firstValues(ctx context.Context, devices int) (row, error) {
	sys, err := system.Open(ctx, system.Options{CPUDevices: devices})
	if err != nil {
		return row{}, err
	}
	defer sys.Close()
	p := min(devices, 2)
	strat, err := strategy.New(sys, strategy.Options{Replicas: devices / p, LogicalDevices: p,
		Variables: logical.Rules{logical.Match("matrix", logical.SplitInto(1, p))}})
	if err != nil {
		return row{}, err
	}
	defer strat.Close()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(1))
	width := max(2, int(float64(firstWidth)*effort)&^1)
	init := initializer.XavierUniformFn(store)
	elements := 0
	step := strat.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		elements = 0
		add := func(name string, init model.VariableInitializer, dims ...int) {
			rc.Scope(name).Store().VariableWithShape("/"+name, shapes.Make(dtypes.Float32, dims...), init)
			n := 1
			for _, d := range dims {
				n *= d
			}
			elements += n
		}
		vocabulary := max(64, int(firstVocabulary*effort))
		add("tokens_matrix", init, vocabulary, width)
		add("output_matrix", init, width, vocabulary+vocabulary%2)
		for b := range firstBlocks {
			name := fmt.Sprintf("block%d_", b)
			add(name+"qkv_matrix", init, width, 3*width)
			add(name+"projection_matrix", init, width, width)
			add(name+"up_matrix", init, width, 4*width)
			add(name+"down_matrix", init, 4*width, width)
			add(name+"bias", initializer.Zero, 4*width)
		}
		return nil
	}, strategy.FunctionOptions{Name: "variables", Store: store})
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		return row{}, err
	}
	start := time.Now()
	if _, err := step.Run(ctx); err != nil {
		return row{}, err
	}
	took := time.Since(start)
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		return row{}, err
	}
	made := strat.Variables(store).FirstValues()
	return row{Us: round(float64(took.Nanoseconds()) / 1e3), Note: fmt.Sprintf(
		"%d x %d, %.1f million elements: making %.2f s, compiling %.2f s (%d programs), lowering %.3f s, processor %.2f s user and %.2f s system; %d on the devices, %d on the host; %s",
		devices/p, p, float64(elements)/1e6, made.Making.Seconds(), made.Compiling.Seconds(), made.Programs, made.Lowering.Seconds(),
		seconds(after.Utime)-seconds(before.Utime), seconds(after.Stime)-seconds(before.Stime),
		made.OnDevices, made.OnHost, peakMemory())}, nil
}

func seconds(t syscall.Timeval) float64 { return time.Duration(t.Nano()).Seconds() }

// peakMemory says how much memory this process has had at most, as Linux counts it.
func peakMemory() string {
	if kB := memoryOf("VmHWM:"); kB > 0 {
		return fmt.Sprintf("peak memory %d kB", kB)
	}
	return "peak memory unknown"
}

// memoryOf is a line of what Linux says of this process's memory, in kB; 0 if it says nothing.
func memoryOf(line string) (kB int64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), "\n"+line)
	_, _ = fmt.Sscan(rest, &kB)
	return kB
}
