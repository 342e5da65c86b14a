package strategy_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/tpustrategy/tpustrategy/internal/hlotest"
	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func batch(rows, columns int) (x, y *tensors.Tensor) {
	xs, ys := make([]float32, rows*columns), make([]float32, rows)
	for i := range xs {
		xs[i] = float32(i%7) - 3
		ys[i/columns] += xs[i]
	}
	return tensors.FromFlatDataAndDimensions(xs, rows, columns), tensors.FromFlatDataAndDimensions(ys, rows, 1)
}

func TestEveryAnnotationIsInTheModule(t *testing.T) {
	strat := strategytest.New(t, 2, 2, strategy.Options{Variables: logical.Rules{
		logical.Match(`hidden/.*weights`, logical.SplitInto(1, 2)),
	}})
	step := train.New(strat, model.NewStore(), optimizer.Adam().Done(), strategytest.Annotated(2),
		train.Options{Arguments: []logical.Annotation{logical.SplitInto(2, 1)}})
	x, y := batch(8, 8)
	compiled, err := step.Compiled(context.Background(), x, y)
	require.NoError(t, err)
	text := string(compiled.Module.Text)
	for what, want := range map[string]string{
		"mesh":             `sdy.mesh @mesh = <["replica"=2, "logical"=2]>`,
		"split activation": ` <@mesh, [{}, {"logical"}]> : tensor<4x16xf32>`,
		"assign":           `sdy.manual_computation(%`,
		"region":           `func.call @region_0(`,
		"skipped region":   `"stablehlo.if"(%region_here)`,
		"split argument":   `tensor<8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"replica", "logical"}, {}]>}`,
		"split variable":   `tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"logical"}]>, tf.aliasing_output = `,
		"gradient sum":     `replica_groups = #replica_groups, use_global_device_ids}`,
	} {
		assert.True(t, strings.Contains(text, want), "%s: no %q in the module", what, want)
	}
	// Replicate is a closed constraint with no axes.
	assert.Regexp(t, `sdy\.sharding_constraint %\d+ <@mesh, \[\{\}, \{\}\]> : tensor<4x1xf32>`, lineWith(text, "tensor<4x1xf32>", "constraint"))
	// One all-reduce for each trainable variable, one for the loss.
	assert.Equal(t, 6+1, strings.Count(text, `replica_groups = #replica_groups`))
}

func TestSplitDividesTheBytesEachDeviceHolds(t *testing.T) {
	ctx := context.Background()
	perDevice := map[int]int64{}
	for _, p := range []int{1, 2, 4} {
		strat := strategytest.On(t, plugintest.System(t, 4), strategy.Options{Replicas: 1, LogicalDevices: p, Variables: logical.Rules{
			logical.Match(`hidden/.*weights`, logical.SplitInto(1, p)),
		}})
		store := model.NewStore()
		step := train.New(strat, store, optimizer.StochasticGradientDescent().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := logical.Split(layers.Dense(rc.Scope("hidden"), in[0], true, 1024), 1, p)
			return graph.ReduceAllMean(graph.Square(graph.Sub(graph.ReduceSum(h, -1), graph.Squeeze(in[1]))))
		})
		x, y := batch(8, 256)
		_, err := step.Run(ctx, x, y)
		require.NoError(t, err)
		v, ok := strat.Variables(store).Lookup("/hidden/dense/weights")
		require.True(t, ok)
		assert.Equal(t, 4*256*1024/p, v.BytesPerDevice())
		compiled, err := step.Compiled(ctx, x, y)
		require.NoError(t, err)
		stats, err := compiled.Executable.Executable().MemoryStats()
		require.NoError(t, err)
		perDevice[p] = stats.Arguments
		// Every variable of the step is donated: the compiler aliases all of them.
		variables := 0
		for _, v := range strat.Variables(store).All() {
			if v.Path() != "/optimizers/learning_rate" { // read, never written
				variables += v.BytesPerDevice()
			}
		}
		assert.EqualValues(t, variables, stats.Alias)
		t.Logf("%d logical devices: arguments %d, aliased %d of %d bytes of variables", p, stats.Arguments, stats.Alias, variables)
	}
	weights := int64(4 * 256 * 1024)
	assert.Equal(t, weights/2, perDevice[1]-perDevice[2])
	assert.Equal(t, weights/4, perDevice[2]-perDevice[4])
}

// cpuTime is what the process has taken of all cores.
func cpuTime(t *testing.T) time.Duration {
	var usage unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func TestOnIsSkippedByTheOtherDevices(t *testing.T) {
	// Work that 8 devices do takes a multiple of the CPU time of work that one does,
	// however many cores there are.
	ctx := context.Background()
	strat := strategytest.New(t, 1, 8)
	work := func(x *graph.Node) *graph.Node {
		for range 12 {
			x = graph.Tanh(graph.MatMul(x, x))
		}
		return x
	}
	all := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{work(in[0])}
	}, strategy.FunctionOptions{Name: "all"})
	one := strat.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{logical.On(5, in[0], work)}
	}, strategy.FunctionOptions{Name: "one"})
	x, err := strat.Mirror(ctx, tensors.FromScalarAndDimensions(float32(0.01), 512, 512), logical.Annotation{})
	require.NoError(t, err)
	measure := func(f *strategy.Function) time.Duration {
		best := time.Hour
		for range 4 {
			start := cpuTime(t)
			out, err := f.Run(ctx, x)
			require.NoError(t, err)
			require.NoError(t, out[0].Ready(ctx))
			best = min(best, cpuTime(t)-start)
		}
		return best
	}
	timeAll, timeOne := measure(all), measure(one)
	t.Logf("all 8 devices: %v, device 5 alone: %v", timeAll, timeOne)
	assert.Less(t, timeOne, timeAll*2/3)

	compiled, err := one.Compiled(ctx, x)
	require.NoError(t, err)
	program, err := compiled.Executable.Executable().OptimizedProgram()
	require.NoError(t, err)
	assert.True(t, bytes.Contains(program.Code, []byte("conditional")), "the compiler kept the branch")

	wantOut, err := all.Run(ctx, x)
	require.NoError(t, err)
	gotOut, err := one.Run(ctx, x)
	require.NoError(t, err)
	want, err := wantOut[0].Local(ctx, 0)
	require.NoError(t, err)
	got, err := gotOut[0].Local(ctx, 0)
	require.NoError(t, err)
	assert.True(t, want.InDelta(got, 1e-6))
}

// lineWith returns the first line of text that has all the words.
func lineWith(text string, words ...string) string {
	for line := range strings.Lines(text) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			return line
		}
	}
	return ""
}

// Layers that are assigned to a logical device are computed there alone, forward and backward, and train as they do
// everywhere.
func TestAssignedLayersTrainOnTheirDevices(t *testing.T) {
	ctx := context.Background()
	train := func(devices int) (loss []float32, ops []hlotest.Op) {
		strat := strategytest.New(t, 2, devices)
		step := train.New(strat, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := logical.Assign(graph.Tanh(layers.Dense(rc.Scope("first"), in[0], true, 32)), 0)
			h = logical.Assign(graph.Tanh(layers.Dense(rc.Scope("second"), h, true, 32)), devices-1)
			y := logical.Assign(layers.Dense(rc.Scope("last"), h, true, 1), 0)
			return graph.ReduceAllMean(graph.Square(graph.Sub(y, in[1])))
		})
		x, y := batch(16, 32)
		for range 5 {
			out, err := step.Run(ctx, x, y)
			require.NoError(t, err)
			value, err := out.Local(ctx, 0)
			require.NoError(t, err)
			loss = append(loss, value.Value().(float32))
		}
		compiled, err := step.Compiled(ctx, x, y)
		require.NoError(t, err)
		return loss, hlotest.Ops(t, compiled.Executable.Executable())
	}
	want, _ := train(1)
	for _, devices := range []int{2, 4} {
		got, ops := train(devices)
		assert.InDeltaSlice(t, want, got, 1e-4)
		var alone, everywhere int
		for _, op := range ops {
			switch {
			case op.Code == "dot" && op.Guarded:
				alone++
			case op.Code == "dot":
				everywhere++
			}
		}
		assert.Zero(t, everywhere, "products that all devices of a replica run")
		assert.GreaterOrEqual(t, alone, 7, "three forward, four backward, as the gradient of the input is not asked for")
	}
}
