package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The caller keeps ownership of the arguments: a slice that is refilled for each step is read
// again.
func TestTrainStepReadsItsArgumentsAnew(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			w := rc.Scope().VariableWithValue("w", float32(0))
			return graph.Add(graph.ReduceAllMean(in[0]), graph.MulScalar(w.NodeValue(rc.Graph()), 0))
		}, train.Options{}))
	x := []float32{1, 1, 1, 1}
	args := []any{x}
	for i := range 3 {
		for j := range x {
			x[j] = float32(i)
		}
		loss, err := step.Run(ctx, args...)
		require.NoError(t, err)
		value, err := loss.Float64(ctx)
		require.NoError(t, err)
		assert.Equal(t, float64(i), value)
	}
	assert.IsType(t, []float32{}, args[0])
}

// A step allocates nothing, with host values or values on the devices, for any number of replicas
// and rows.
func TestTrainStepAllocatesNothing(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 4, 2)
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		strategytest.Annotated(2), train.Options{}))
	x, y := strategytest.Sums(64, 8)
	px, err := s.SplitBatch(ctx, x, logical.Annotation{}, false)
	require.NoError(t, err)
	py, err := s.SplitBatch(ctx, y, logical.Annotation{}, false)
	require.NoError(t, err)
	for name, batch := range map[string][]any{"host": {x, y}, "resident": {px, py}} {
		run := func() {
			loss, err := step.Run(ctx, batch...)
			if err == nil {
				err = loss.Ready(ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		run()
		assert.Zero(t, testing.AllocsPerRun(50, run), name)
	}
}

// A batch without rows runs if its ops support it; otherwise the error reports it.
func TestABatchWithoutRowsRunsOrIsNamed(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	none := tensors.FromShape(shapes.Make(dtypes.Float32, 0, 3))
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("dense"), in[0], true, 1)))
		}, train.Options{}))
	_, run := step.Run(ctx, none)
	_, steps := step.RunSteps(ctx, []any{none}, []any{none})
	_, compiled := step.Compiled(ctx, none)
	for _, err := range []error{run, steps, compiled} {
		var argument *strategy.ArgumentError
		require.ErrorAs(t, err, &argument)
		assert.Contains(t, argument.Reason, "no rows: a replica's part is Float32[0 3]")
		assert.Equal(t, "leave out batches without rows", argument.Hint)
		var trace *strategy.TraceError
		assert.ErrorAs(t, err, &trace)
	}
	_, err := step.Run(ctx, [][]float32{})
	require.ErrorContains(t, err, "an empty [][]float32 does not define the length of its rows")

	double := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.MulScalar(in[0], 2)}
	}, strategy.FunctionOptions{SplitBatch: true})
	results, err := double.Run(ctx, none)
	require.NoError(t, err)
	value, err := results[0].Local(ctx, 0)
	require.NoError(t, err)
	assert.Equal(t, []int{0, 3}, value.Shape().Dimensions)
}
