package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// rowsDataset is a dataset of (x, y) batches: x has shape [n, 4] and numbers from 0, y has shape
// [n] and the row numbers.
func rowsDataset(t *testing.T, s *strategy.TPUStrategy, n, batch int) input.Dataset {
	t.Helper()
	x, y := make([][]float32, n), make([]float32, n)
	for i := range x {
		y[i] = float32(i)
		for j := range 4 {
			x[i] = append(x[i], float32(i*4+j))
		}
	}
	ds, err := eager.Of(s).MakeNumpyDataset([]any{x, y})
	require.NoError(t, err)
	return ds.Batch(batch, false)
}

// shards returns the dimensions of each device's shard of a value.
func shards(t *testing.T, v strategy.Value) (dims [][]int) {
	t.Helper()
	_, err := v.Local(context.Background(), 0)
	require.NoError(t, err)
	buffers, err := strategy.BuffersOf(v)
	require.NoError(t, err)
	for _, b := range buffers {
		dims = append(dims, b.Dims())
	}
	return dims
}

func TestDistributedInputIsSplitFromTheStart(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	columns := []logical.Annotation{logical.SplitInto(1, 2)}
	d, err := feed.Distribute(s, rowsDataset(t, s, 8, 4), feed.DistributeOptions{Arguments: columns})
	require.NoError(t, err)
	it, err := feed.Iterate(ctx, s, d)
	require.NoError(t, err)
	defer it.Close()
	step, err := it.Next(ctx)
	require.NoError(t, err)
	x, y := step.([]any)[0].(*strategy.PerReplica), step.([]any)[1].(*strategy.PerReplica)
	assert.Equal(t, [][]int{{2, 2}, {2, 2}, {2, 2}, {2, 2}}, shards(t, x), "no device holds the whole")
	assert.Equal(t, [][]int{{2}, {2}, {2}, {2}}, shards(t, y))
	f := s.Function(double, strategy.FunctionOptions{Arguments: columns})
	m, err := f.Lowered(ctx, x)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2}, m.Arguments[0].ShardDims)
	assert.Contains(t, string(m.Text), `tensor<4x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"replica"}, {"logical"}]>}`)

	fed, err := feed.New(ctx, s, d, feed.Options{})
	require.NoError(t, err)
	defer fed.Close()
	b, err := fed.Next(ctx)
	require.NoError(t, err)
	assert.Equal(t, [][]int{{2, 2}, {2, 2}, {2, 2}, {2, 2}}, shards(t, b.Values[0]))
}

func TestInputThatCannotBeSplitSaysWhich(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 3)
	for says, annotations := range map[string][]logical.Annotation{
		"dimension 1 of size 4 is not divisible into 3 parts": {logical.SplitInto(1, 3)},
		"1 parts [3] for 2 dimensions":                        {logical.SplitInto(3)},
		"3 annotations for the 2 leaves":                      {{}, {}, logical.SplitInto(3)},
	} {
		d, err := feed.Distribute(s, rowsDataset(t, s, 8, 4), feed.DistributeOptions{Arguments: annotations})
		require.NoError(t, err)
		it, err := feed.Iterate(ctx, s, d)
		require.NoError(t, err)
		_, err = it.Next(ctx)
		require.ErrorContains(t, err, says)
		require.NoError(t, it.Close())
		if len(annotations) == 1 {
			var wrong *logical.Error
			require.ErrorAs(t, err, &wrong)
			assert.ErrorContains(t, err, "inputs[0]")
		}
	}
	x, err := s.PerReplica(ctx, []any{[][]float32{{1, 2, 3, 4}}, [][]float32{{1, 2, 3, 4}}}, logical.Annotation{})
	require.NoError(t, err)
	opts := strategy.FunctionOptions{Name: "halves", Arguments: []logical.Annotation{logical.SplitInto(1, 3)}}
	_, err = s.Function(double, opts).Run(ctx, x)
	var wrong *strategy.ArgumentError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "halves: argument 0: not laid out as 1,3: logical: split of shape [1 4]: dimension 1 "+
		"of size 4 is not divisible into 3 parts")
	_, err = strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), strategytest.Annotated(1),
		train.Options{Arguments: opts.Arguments})).Run(ctx, x)
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, "dimension 1 of size 4")
	opts.Arguments = []logical.Annotation{{}, logical.SplitInto(3)}
	_, err = s.Function(double, opts).Run(ctx, x)
	require.ErrorContains(t, err, "annotated 3, but the step has 1 arguments")
}

// A value with another layout is resharded to the layout that the step requests, for each way to
// pass values to a step.
func TestAStepLaysItsArgumentsOut(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	columns := []logical.Annotation{logical.SplitInto(1, 2)}
	host := []any{[][]float32{{1, 2, 3, 4}, {5, 6, 7, 8}}, [][]float32{{9, 10, 11, 12}, {13, 14, 15, 16}}}
	want := []any{[][]float32{{2, 4, 6, 8}, {10, 12, 14, 16}}, [][]float32{{18, 20, 22, 24}, {26, 28, 30, 32}}}
	for _, from := range []logical.Annotation{{}, logical.SplitInto(2, 1), columns[0], logical.Replicated()} {
		x, err := s.PerReplica(ctx, host, from)
		require.NoError(t, err)
		for _, to := range [][]logical.Annotation{columns, {logical.SplitInto(2, 1)}, {logical.Replicated()},
			{logical.AssignTo(1)}, nil} {
			f := s.Function(double, strategy.FunctionOptions{Arguments: to})
			m, err := f.Lowered(ctx, x)
			require.NoError(t, err)
			expected := from
			if len(to) > 0 {
				expected = to[0]
			}
			assert.Equal(t, expected.String(), m.Arguments[0].Annotation.String())
			out, err := f.Run(ctx, x)
			require.NoError(t, err)
			assert.Equal(t, want, strategytest.Values(t, out[0], 2))

			bound, err := f.Bind(ctx, x)
			require.NoError(t, err)
			require.NoError(t, bound.Launch(ctx))
			require.NoError(t, bound.Launch(ctx))
			assert.Equal(t, want, strategytest.Values(t, bound.Results()[0], 2))
			require.NoError(t, bound.Close())

			nest := nest.New(s, func(rc *strategy.ReplicaContext, args []any) any {
				return map[string]any{"y": double(rc, []*graph.Node{args[0].([]any)[0].(*graph.Node)})[0]}
			}, strategy.FunctionOptions{Arguments: to})
			m, err = nest.Lowered(ctx, []any{x})
			require.NoError(t, err)
			assert.Equal(t, expected.String(), m.Arguments[0].Annotation.String())
			y, err := nest.Run(ctx, []any{x})
			require.NoError(t, err)
			assert.Equal(t, want, strategytest.Values(t, y.(map[string]any)["y"].(strategy.Value), 2))
		}
		assert.Equal(t, host, strategytest.Values(t, x, 2), "the caller's value stays")
		require.NoError(t, x.Close())
	}
	same, err := s.Mirror(ctx, host[0], logical.Annotation{})
	require.NoError(t, err)
	f := s.Function(double, strategy.FunctionOptions{Arguments: columns})
	m, err := f.Lowered(ctx, same)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2}, m.Arguments[0].ShardDims)
	stacked, err := s.StackBatches(ctx, []any{[][]float32{{1, 2}, {3, 4}}, [][]float32{{5, 6}, {7, 8}}},
		logical.Annotation{})
	require.NoError(t, err)
	m, err = f.Lowered(ctx, stacked)
	require.NoError(t, err)
	assert.Contains(t, string(m.Text), `sdy.sharding_constraint %argument_0 <@mesh, [{}, {"logical"}]>`)
	out, err := f.Run(ctx, stacked)
	require.NoError(t, err)
	assert.Equal(t, []any{[][]float32{{10, 12}}, [][]float32{{14, 16}}}, strategytest.Values(t, out[0], 2))
}

func TestATrainingStepLaysItsBatchOut(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		w := rc.Scope().VariableWithValue("w", tensors.FromValue([]float32{1, 1, 1, 1}))
		return graph.ReduceAllMean(graph.Square(graph.Mul(in[0], graph.ExpandLeftToRank(w.NodeValue(rc.Graph()), 2))))
	}
	x := [][]float32{{1, 2, 3, 4}, {5, 6, 7, 8}}
	var losses []float64
	for _, split := range []bool{false, true} {
		o := train.Options{}
		if split {
			o.Arguments = []logical.Annotation{logical.SplitInto(1, 2)}
		}
		step := strategytest.OK(train.New(s, model.NewStore(),
			optimizer.StochasticGradientDescent().WithLearningRate(0.01).Done(), loss, o))
		var last float64
		for range 3 {
			v, err := s.SplitBatch(ctx, x, logical.Annotation{}, false)
			require.NoError(t, err)
			l, err := step.Run(ctx, v)
			require.NoError(t, err)
			last, err = l.Float64(ctx)
			require.NoError(t, err)
			require.NoError(t, v.Close())
		}
		losses = append(losses, last)
		v, err := s.SplitBatch(ctx, x, logical.Annotation{}, false)
		require.NoError(t, err)
		c, err := step.Compiled(ctx, v)
		require.NoError(t, err)
		if split {
			assert.Equal(t, []int{1, 2}, c.Module.Arguments[0].ShardDims)
		} else {
			assert.Equal(t, []int{1, 4}, c.Module.Arguments[0].ShardDims)
		}
	}
	assert.InDelta(t, losses[0], losses[1], 1e-5)
}
