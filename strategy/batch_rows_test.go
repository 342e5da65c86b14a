package strategy_test

import (
	"fmt"
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

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// column returns a batch of n rows with one number.
func column(n int) *tensors.Tensor {
	return tensors.FromFlatDataAndDimensions(make([]float32, n), n, 1)
}

// fedRows returns the replicas' shares of the first element of a dataset whose components have the
// given numbers of rows.
func fedRows(t *testing.T, s *strategy.TPUStrategy, rows ...int) (args []any) {
	t.Helper()
	element := func(more int) input.Dataset {
		var leaves []input.Element
		for _, n := range rows {
			leaves = append(leaves, input.Leaf(strategytest.OK(input.NewTensor(make([]float32, n+more), n+more, 1))))
		}
		return input.FromElements(input.Tuple(leaves...))
	}
	// batches of different sizes
	d, err := feed.Distribute(s, element(0).Concatenate(element(8)), feed.DistributeOptions{})
	require.NoError(t, err)
	it, err := feed.Iterate(t.Context(), s, d)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, it.Close()) })
	next, err := it.Next(t.Context())
	require.NoError(t, err)
	return next.([]any)
}

// On 8 replicas a share of y has one row, which broadcasts over the two rows of a share of x.
func TestSplitArgumentsHaveTheSameNumberOfRows(t *testing.T) {
	strategytest.OnMeshes(t, [][2]int{{1, 1}, {4, 2}, {8, 1}}, func(t *testing.T, s *strategy.TPUStrategy) {
		ctx := t.Context()
		traces := 0
		build := func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			traces++
			return []*graph.Node{graph.ReduceAllMean(graph.Sub(in[0], in[1]))}
		}
		split := s.Function(build, strategy.FunctionOptions{Name: "split", SplitBatch: true, Padding: strategy.MaskPadding})
		mirrored := s.Function(build, strategy.FunctionOptions{Name: "split"})
		step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				traces++
				return graph.ReduceAllMean(graph.Sub(layers.Dense(rc.Scope("out"), in[0], true, 1), in[1]))
			}, train.Options{Name: "split"}))
		evaluation := strategytest.OK(train.NewEvaluation(s, model.NewStore(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				traces++
				return graph.ReduceAllMean(graph.Sub(in[0], in[1]))
			}, train.Options{Name: "split"}))
		part := func(n int) any { return strategytest.OK(s.SplitBatch(ctx, column(n), logical.Annotation{}, false)) }
		for name, run := range map[string]func() error{
			"host tensors":   func() error { return strategytest.Err(split.Run(ctx, column(16), column(8))) },
			"slices":         func() error { return strategytest.Err(split.Run(ctx, make([]float32, 16), make([]float32, 8))) },
			"padded":         func() error { return strategytest.Err(split.Run(ctx, column(16), column(8))) },
			"values":         func() error { return strategytest.Err(split.Run(ctx, part(16), part(8))) },
			"host and value": func() error { return strategytest.Err(split.Run(ctx, part(16), column(8))) },
			"split values":   func() error { return strategytest.Err(mirrored.Run(ctx, part(16), part(8))) },
			"fed values":     func() error { return strategytest.Err(mirrored.Run(ctx, fedRows(t, s, 16, 8)...)) },
			"bound":          func() error { return strategytest.Err(split.Bind(ctx, column(16), column(8))) },
			"train":          func() error { return strategytest.Err(step.Run(ctx, column(16), column(8))) },
			"train on feed":  func() error { return strategytest.Err(step.Run(ctx, fedRows(t, s, 16, 8)...)) },
			"steps": func() error {
				return strategytest.Err(step.RunSteps(ctx, []any{column(16), column(8)}, []any{column(16), column(8)}))
			},
			"evaluation": func() error { return evaluation.Run(ctx, column(16), column(8)) },
			"shapes": func() error {
				return strategytest.Err(step.Compiled(ctx, shapes.Make(dtypes.Float32, 16, 1), shapes.Make(dtypes.Float32, 8, 1)))
			},
			"lowered": func() error { return strategytest.Err(step.Lowered(ctx, column(16), column(8))) },
			"behind a mirrored": func() error {
				one := strategytest.OK(s.Mirror(ctx, float32(1), logical.Annotation{}))
				return strategytest.Err(split.Run(ctx, one, column(16), column(8)))
			},
		} {
			err := run()
			var wrong *strategy.ArgumentError
			if !assert.ErrorAs(t, err, &wrong, name) {
				continue
			}
			first := wrong.Argument - 1
			assert.ErrorContains(t, err, fmt.Sprintf(`strategy: run "split": argument %d has 8 rows but argument %d has 16; `+
				"arguments split over replicas must have the same number of rows: pass an argument that is not a batch as a "+
				"mirrored value (TPUStrategy.Mirror)",
				first+1, first), name)
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		}
		assert.Zero(t, traces, "the rows are compared before the step is traced")

		nested := nest.New(s, func(_ *strategy.ReplicaContext, args []any) any { return args },
			strategy.FunctionOptions{SplitBatch: true})
		_, err := nested.Run(ctx, map[string]any{"x": column(16), "y": column(8)})
		assert.ErrorContains(t, err, `strategy: run "step": args[0][y] has 8 rows but args[0][x] has 16`)
	})
}

// Arguments that are not batches may have any number of rows.
func TestArgumentsBesideABatch(t *testing.T) {
	strategytest.OnMeshes(t, [][2]int{{1, 1}, {8, 1}}, func(t *testing.T, s *strategy.TPUStrategy) {
		ctx := t.Context()
		table := strategytest.OK(s.Mirror(ctx, make([]float32, 3), logical.Annotation{}))
		each := make([]any, s.NumReplicasInSync())
		for r := range each {
			each[r] = float32(r)
		}
		scalars := strategytest.OK(s.PerReplica(ctx, each, logical.Annotation{}))
		variable := strategytest.OK(s.NewVariable(ctx, make([]float32, 5), strategy.VariableOptions{}))
		f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			sum := graph.ReduceAllSum(in[0])
			for _, x := range in[1:] {
				sum = graph.Add(sum, graph.ReduceAllSum(x))
			}
			return []*graph.Node{sum}
		}, strategy.FunctionOptions{SplitBatch: true})
		_, err := f.Run(ctx, column(16), table, scalars, variable, column(16))
		require.NoError(t, err)
		stacked := strategytest.OK(s.StackBatches(ctx, []any{column(16), column(16)}, logical.Annotation{}))
		_, err = f.Run(ctx, stacked, table)
		require.NoError(t, err)

		// A graph has different numbers of nodes and edges.
		free := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
			strategy.FunctionOptions{SplitBatch: true, UnequalRows: true})
		_, err = free.Run(ctx, column(16), column(8))
		require.NoError(t, err)
		// Each replica receives the complete argument; a step may also receive one component of a
		// batch alone.
		whole := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
			strategy.FunctionOptions{})
		_, err = whole.Run(ctx, column(16), column(8))
		require.NoError(t, err)
		_, err = whole.Run(ctx, fedRows(t, s, 16, 8)[1], column(3))
		require.NoError(t, err)
	})
}

// If the replicas have different rows of two arguments, the step would combine the wrong rows.
func TestRaggedArgumentsHaveTheSameRowsOnEachReplica(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return in },
		strategy.FunctionOptions{SplitBatch: true, Padding: strategy.KeepPadding})
	value := func(a, b int) any {
		return strategytest.OK(s.PerReplica(t.Context(), []any{column(a), column(b)}, logical.Annotation{}))
	}
	_, err := f.Run(t.Context(), value(2, 1), value(1, 2))
	assert.ErrorContains(t, err, "argument 1 has [1 2] rows on the replicas but argument 0 has [2 1]")
	_, err = f.Run(t.Context(), column(3), value(1, 2))
	assert.ErrorContains(t, err, "argument 1 has [1 2] rows on the replicas but argument 0 has [2 1]")
	_, err = f.Run(t.Context(), value(2, 1), column(3))
	assert.NoError(t, err)
	_, err = f.Run(t.Context(), column(3), column(4))
	assert.ErrorContains(t, err, "argument 0 has 3 rows but argument 1 has 4")
}
