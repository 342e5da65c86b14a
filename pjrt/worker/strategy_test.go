package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/cache"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func sum(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
	return []*graph.Node{rc.AllReduce(strategy.Sum, in[0])}
}

// runSum runs a step, saves it, and runs the saved step.
func runSum(t *testing.T, sys *system.System, compiler pjrt.Compiler) {
	t.Helper()
	ctx := context.Background()
	s, err := strategy.New(sys, strategy.Options{Replicas: 2, LogicalDevices: 2, Compiler: compiler})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	f := s.Function(sum, strategy.FunctionOptions{Name: "sum"})
	check := func(f *strategy.Function) {
		out, err := f.Run(ctx, []float32{1, 2})
		require.NoError(t, err)
		got, err := out[0].Local(ctx, 1)
		require.NoError(t, err)
		require.Equal(t, []float32{2, 4}, got.Value())
	}
	check(f)
	compiled, err := f.Compiled(ctx, []float32{1, 2})
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, stepfile.Save(t.Context(), &file, compiled))
	loaded, err := stepfile.Load(ctx, s, &file, nil)
	require.NoError(t, err)
	check(loaded)
}

func TestStrategyWithWorkers(t *testing.T) {
	runSum(t, plugintest.System(t, 4), newCompiler(t, worker.Options{}))
}

func TestCacheWithWorkers(t *testing.T) {
	sys := plugintest.System(t, 4)
	dir := t.TempDir()
	for round := range 2 {
		programs, err := cache.Open(dir, cache.Options{Compiler: newCompiler(t, worker.Options{})})
		require.NoError(t, err)
		runSum(t, sys, programs)
		if round == 1 {
			assert.Positive(t, programs.Stats().Hits)
			assert.Zero(t, programs.Stats().Misses)
		}
	}
}

// A crash of the compiler makes one step fail, and the strategy still works.
func TestStrategyWorksAfterCompilerCrash(t *testing.T) {
	ctx := context.Background()
	flags := worker.Options{Env: []string{"XLA_FLAGS=--no_such_flag=1"}}
	s, err := strategy.New(plugintest.System(t, 2), strategy.Options{Compiler: newCompiler(t, flags)})
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Function(sum, strategy.FunctionOptions{}).Run(ctx, float32(1))
	var died *worker.Error
	require.ErrorAs(t, err, &died)
	v, err := s.NewVariable(ctx, tensors.FromScalar(float32(3)), strategy.VariableOptions{Name: "v"})
	require.NoError(t, err)
	got, err := v.SaveValue(ctx)
	require.NoError(t, err)
	require.Equal(t, float32(3), got.Value())
}

// Close of a strategy stops the worker of a step whose caller has returned.
func TestCloseStopsWorkers(t *testing.T) {
	took := time.Hour
	for range 3 { // a try may be slow on a busy machine
		if took = min(took, closeDuringCompilation(t)); took < 5*time.Second {
			return
		}
	}
	t.Errorf("closing took %v at least", took)
}

// closeDuringCompilation returns the duration of Close while a worker compiles.
func closeDuringCompilation(t *testing.T) time.Duration {
	t.Helper()
	sys := plugintest.System(t, 1)
	s, err := strategy.New(sys, strategy.Options{Compiler: slowCompiler{newCompiler(t, worker.Options{})}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		awaitWorker(t, os.Getpid())
	}()
	_, err = s.Function(sum, strategy.FunctionOptions{}).Run(ctx, float32(1))
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, workers(t, os.Getpid()), "the compilation continues for later calls")
	start := time.Now()
	require.NoError(t, s.Close())
	requireNoWorkers(t)
	return time.Since(start)
}

// slowCompiler compiles a slow program instead of each program.
type slowCompiler struct{ *worker.Compiler }

func (l slowCompiler) Compile(ctx context.Context, client *pjrt.Client, _ pjrt.Program,
	_ pjrt.CompileOptions) (*pjrt.LoadedExecutable, error) {
	return l.Compiler.Compile(ctx, client, sorts(7000), pjrt.CompileOptions{})
}

func TestCompileAheadOfTimeInWorker(t *testing.T) {
	plugintest.Path(t, "tpu")
	if !plugintest.InChild(t) {
		out, err := plugintest.Child(t, plugintest.TPUEnv()...)
		require.NoError(t, err, out)
		require.NotContains(t, out, "--- SKIP")
		return
	}
	ctx := context.Background()
	slice, err := system.Describe(ctx, "v5e:2x2", system.DescribeOptions{})
	require.NoError(t, err)
	defer slice.Close()
	reports := map[string]string{}
	for name, compiler := range map[string]pjrt.Compiler{"here": nil, "worker": newCompiler(t, worker.Options{})} {
		s, err := strategy.NewAheadOfTime(slice, strategy.Options{LogicalDevices: 2, Compiler: compiler})
		require.NoError(t, err)
		compiled, err := s.Function(sum, strategy.FunctionOptions{Name: "sum"}).Compiled(ctx,
			shapes.Make(dtypes.Float32, 8, 128))
		require.NoError(t, err)
		r, err := report.Of(compiled)
		require.NoError(t, err)
		memory, err := compiled.Program.MemoryStats()
		require.NoError(t, err)
		optimized, err := compiled.Program.OptimizedProgram()
		require.NoError(t, err)
		reports[name] = fmt.Sprintf("%+v %d %s %v", memory, len(optimized.Code), optimized.Format, r.Target)
		var file bytes.Buffer
		require.NoError(t, stepfile.Save(t.Context(), &file, compiled))
		require.Positive(t, file.Len())
		require.NoError(t, s.Close())
	}
	require.Equal(t, reports["here"], reports["worker"])
	// A topology without a name is sent in serialized form.
	serialized, err := slice.Description().Serialize()
	require.NoError(t, err)
	described, err := slice.Plugin().LoadTopology(ctx, serialized)
	require.NoError(t, err)
	defer described.Close()
	x, err := newCompiler(t, worker.Options{}).CompileTopology(ctx, described, addOne, pjrt.CompileOptions{})
	require.NoError(t, err)
	types, err := x.OutputDims()
	require.NoError(t, err)
	require.Equal(t, [][]int{{4}}, types)
	require.NoError(t, x.Close())
}
