package strategy_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// reportOf compiles a training step with plain gradient descent.
func reportOf(t *testing.T, name string, opts strategy.Options, loss train.Loss, batch ...any) *report.Report {
	t.Helper()
	strat := strategytest.Ahead(t, name, opts)
	compiled, err := strategytest.OK(train.New(strat, strategytest.SeededStore(),
		optimizer.StochasticGradientDescent().Done(), loss, train.Options{})).Compiled(context.Background(), batch...)
	require.NoError(t, err)
	r, err := report.Of(compiled)
	require.NoError(t, err)
	return r
}

// stackOf returns a model of layersCount layers with the given width and without biases.
func stackOf(width, layersCount int, split bool) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x, p := in[0], rc.Strategy().NumLogicalDevices()
		for i := range layersCount {
			scope := "up"
			if i%2 == 1 {
				scope = "down"
			}
			x = layers.Dense(rc.Scope(scope+strconv.Itoa(i)), x, false, width)
			switch {
			case split && i%2 == 0:
				x = graph.Tanh(logical.Split(x, 1, p))
			case split:
				x = logical.Replicate(x)
			default:
				x = graph.Tanh(x)
			}
		}
		return graph.ReduceAllMean(graph.Square(graph.Sub(x, in[1])))
	}
}

func TestAOTCollectivesOfDataParallelTrainingAreTheGradients(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	const width, count = 256, 3
	batch := shapes.Make(dtypes.Float32, 128, width)
	r := reportOf(t, "v5e:2x4", strategy.Options{}, stackOf(width, count, false), batch, batch)
	bytes, moved := r.CollectiveBytes("replica")
	want := int64(count*width*width*4 + 4) // and the loss
	assert.Equal(t, want, bytes, "%+v", r.Collectives)
	assert.InDelta(t, 2*want*7/8, moved, 8)
	for _, c := range r.Collectives {
		assert.Equal(t, "replica", c.Axis)
		assert.Equal(t, 8, c.GroupSize)
	}
}

func TestAOTCollectivesOfJoinedSlicesCrossTheNetworkOnce(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	const width, count = 256, 2
	batch := shapes.Make(dtypes.Float32, 128, width)
	r := reportOf(t, "2x v5e:2x2", strategy.Options{}, stackOf(width, count, false), batch, batch)
	sent, _ := r.CollectiveBytes("slices")
	// Each of a slice's four cores sends its quarter of the gradients. The loss is padded to a
	// tile.
	assert.InDelta(t, count*width*width*4/4, sent, 512, "%+v", r.Collectives)
}

func TestAOTCollectivesOfASplitDensePairAreItsActivations(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	const width, rows = 256, 64
	batch := shapes.Make(dtypes.Float32, rows, width)
	r := reportOf(t, "v5e:2x2", strategy.Options{Replicas: 1, LogicalDevices: 4, Variables: logical.Rules{
		logical.Match(`up.*weights`, logical.SplitInto(1, 4)), logical.Match(`down.*weights`, logical.SplitInto(4, 1)),
	}}, stackOf(width, 2, true), batch, batch)
	bytes, _ := r.CollectiveBytes("logical")
	// The second product is a sum over the logical devices. The backward pass of the first product
	// needs no sum, because the gradient of the input is not used.
	assert.Equal(t, int64(rows*width*4), bytes, "%+v", r.Collectives)
	require.Len(t, r.Collectives, 1)
	assert.Equal(t, "all-reduce", r.Collectives[0].Kind)
}

func TestAStepOfAnOpenedSystemIsCompiledFromShapes(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 4, 2, strategy.Options{Variables: strategytest.AnnotatedRules(2)})
	step, store, traces := shapedStep(s)
	x, y := strategytest.BatchShapes(32)
	compiled, err := step.Compiled(ctx, x, y)
	require.NoError(t, err)
	require.NotNil(t, compiled.Executable)
	_, err = report.Of(compiled)
	require.NoError(t, err)
	assert.Empty(t, hasValues(store), "variables that were given a value to compile")

	// The same step, compiled by running it.
	other, _, _ := shapedStep(s)
	xs, ys := strategytest.Batch(0)
	require.Equal(t, x, xs.Shape())
	for range 3 {
		want, err := other.Run(ctx, xs, ys)
		require.NoError(t, err)
		wanted, err := want.Float64(ctx)
		require.NoError(t, err)
		loss, err := step.Run(ctx, xs, ys)
		require.NoError(t, err)
		got, err := loss.Float64(ctx)
		require.NoError(t, err)
		assert.Equal(t, wanted, got)
	}
	assert.Equal(t, 1, *traces, "traces: the run takes the program that was compiled from shapes")
	assert.NotEmpty(t, hasValues(store))
}

func TestANestFunctionAndAFunctionAreCompiledFromShapes(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	traces := 0
	nest := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any {
		traces++
		in := args[0].(map[string]any)
		return map[string]any{"sum": graph.Add(in["a"].(*graph.Node), in["b"].(*graph.Node))}
	}, strategy.FunctionOptions{SplitBatch: true})
	shape := shapes.Make(dtypes.Float32, 4, 3)
	_, err := nest.Compiled(ctx, map[string]any{"a": shape, "b": shape})
	require.NoError(t, err)
	value := [][]float32{{1, 2, 3}, {4, 5, 6}, {7, 8, 9}, {1, 2, 3}}
	_, err = nest.Run(ctx, map[string]any{"a": value, "b": value})
	require.NoError(t, err)
	assert.Equal(t, 1, traces)

	_, err = nest.Run(ctx, map[string]any{"a": shape, "b": value})
	require.ErrorContains(t, err, `args[0][a]`)
	assert.ErrorContains(t, err, "give a tensor; Compiled and Lowered take shapes")

	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.MulScalar(in[0], 2)}
	}, strategy.FunctionOptions{SplitBatch: true})
	m, err := f.Lowered(ctx, shape)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 3}, m.Arguments[0].LocalDims)
	_, err = f.Run(ctx, shape)
	require.ErrorContains(t, err, "a shape, which has no contents")
	_, err = f.Compiled(ctx, shapes.Make(dtypes.Float32, 3, 3))
	assert.ErrorContains(t, err, "a batch of 3 rows does not divide among 2 replicas")
	_, err = f.Compiled(ctx, shapes.Shape{})
	assert.Error(t, err)

	mirrored := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
		strategy.FunctionOptions{})
	_, err = mirrored.Compiled(ctx, shape)
	assert.NoError(t, err)
	_, err = mirrored.Run(ctx, value)
	assert.NoError(t, err)
}

func TestAModelLargerThanTheMachineIsCompiledOnAnOpenedSystem(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2, strategy.Options{Variables: logical.Rules{logical.Match(`weights`,
		logical.SplitInto(1, 2))}})
	store := model.NewStore()
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ReduceAllSum(layers.Dense(rc.Scope("wide"), in[0], false, 1<<20))}
	}, strategy.FunctionOptions{Store: store, SplitBatch: true})
	compiled, err := f.Compiled(ctx, shapes.Make(dtypes.Float32, 4, 1<<18)) // a terabyte of weights
	require.NoError(t, err)
	assert.Equal(t, []int{1 << 18, 1 << 19}, compiled.Module.Arguments[1].ShardDims)
	assert.Empty(t, hasValues(store))
}
