package strategy_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
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
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// 11 rows in batches of 4 on two replicas: 2+2, 2+2, 2+1.
func TestAnEpochThatDoesNotDivideIsTrainedWhole(t *testing.T) {
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(3, 4))
	x, y := strategytest.Normals(rng, 11, 8), strategytest.Normals(rng, 11, 1)
	adam := func() optimizer.Interface { return optimizer.Adam().LearningRate(0.01).Done() }
	newStore := func() *model.Store {
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(42))
		return store
	}
	epoch := func(s *strategy.TPUStrategy, step *train.Step) (losses []float64) {
		for pass := range 2 {
			for from := 0; from < 11; from += 4 {
				batch := take([]*tensors.Tensor{x, y}, from, min(from+4, 11))
				var loss *strategy.Mirrored
				var err error
				if pass == 1 && s.NumReplicasInSync() == 2 && from == 8 { // as values, like those of feed.Iterate
					var values []any
					for i := range batch {
						parts := append(take([]*tensors.Tensor{x, y}[i:i+1], 8, 10), take([]*tensors.Tensor{x, y}[i:i+1], 10, 11)...)
						v, err := s.PerReplica(ctx, parts, logical.Annotation{})
						require.NoError(t, err)
						values = append(values, v)
					}
					loss, err = step.Run(ctx, values...)
				} else {
					loss, err = step.Run(ctx, batch...)
				}
				require.NoError(t, err)
				value, err := loss.Float64(ctx)
				require.NoError(t, err)
				losses = append(losses, value)
			}
		}
		return losses
	}
	one := strategytest.New(t, 1, 1)
	want := epoch(one, strategytest.OK(train.New(one, newStore(), adam(), strategytest.Annotated(1), train.Options{})))
	for _, p := range []int{1, 2} {
		s := strategytest.New(t, 2, p)
		step := strategytest.OK(train.New(s, newStore(), adam(), strategytest.Annotated(p), train.Options{}))
		assert.InDeltaSlice(t, want, epoch(s, step), 2e-4)
		// A full batch uses its existing program.
		full, err := step.Lowered(ctx, take([]*tensors.Tensor{x, y}, 0, 4)...)
		require.NoError(t, err)
		padded, err := step.Lowered(ctx, take([]*tensors.Tensor{x, y}, 8, 11)...)
		require.NoError(t, err)
		assert.Equal(t, len(full.Arguments)+2, len(padded.Arguments))
		assert.NotContains(t, string(full.Text), "stablehlo.select")
		assert.Contains(t, string(padded.Text), "stablehlo.select")
	}
}

func TestHostBatchesAreCutUnevenlyOnRequest(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ReduceAllMean(in[0]), graph.MulScalar(in[0], 2)}
	}, strategy.FunctionOptions{SplitBatch: true, Padding: strategy.MaskPadding,
		Arguments: []logical.Annotation{logical.SplitInto(2)}})
	out, err := f.Run(ctx, []float32{1, 2, 3, 4, 5, 6, 7})
	require.NoError(t, err)
	assert.Equal(t, []any{float32(2.5), float32(6)}, strategytest.Values(t, out[0], 2))
	assert.Equal(t, []any{[]float32{2, 4, 6, 8}, []float32{10, 12, 14}}, strategytest.Values(t, out[1], 2))
	out, err = f.Run(ctx, []float32{1, 2, 3, 4, 5}) // 3 and 2 rows, padded to a multiple of two devices
	require.NoError(t, err)
	assert.Equal(t, []any{float32(2), float32(4.5)}, strategytest.Values(t, out[0], 2))
	out, err = f.Run(ctx, []float32{8})
	require.NoError(t, err)
	assert.Equal(t, float32(8), strategytest.Values(t, out[0], 2)[0])
	assert.Equal(t, []any{[]float32{16}, []float32{}}, strategytest.Values(t, out[1], 2))
}

func TestTrainingBatchesOfOtherRows(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			y := layers.Dense(rc.Scope("a"), in[0], true, 1)
			return graph.Add(graph.ReduceAllMean(y), graph.ReduceAllMean(in[1]))
		}, train.Options{}))
	x, err := s.PerReplica(ctx, []any{[][]float32{{1}, {2}}, [][]float32{{3}}}, logical.Annotation{})
	require.NoError(t, err)
	y, err := s.PerReplica(ctx, []any{[]float32{1}, []float32{2, 3}}, logical.Annotation{})
	require.NoError(t, err)
	_, err = step.Run(ctx, x, y)
	var argument *strategy.ArgumentError
	require.ErrorAs(t, err, &argument)
	assert.ErrorContains(t, err, "argument 1 has [1 2] rows on the replicas but argument 0 has [2 1]")
	_, err = step.RunSteps(ctx, []any{[][]float32{{1}, {2}, {3}}, []float32{1, 2, 3}})
	require.ErrorAs(t, err, &argument)
	assert.ErrorContains(t, err, "3 rows does not divide among 2 replicas")
	_, err = step.Run(ctx, []float32{}, []float32{})
	require.Error(t, err)
	assert.False(t, errors.Is(err, context.Canceled))
	assert.False(t, strings.Contains(err.Error(), "panic"), err)
}

// Distributed input ends with an uneven batch, which a step accepts.
func TestDistributedInputIsTrainedToItsEnd(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	w := func(rc *strategy.ReplicaContext) *graph.Node {
		return rc.Scope().VariableWithValue("w", float32(0)).NodeValue(rc.Graph())
	}
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.Add(graph.ReduceAllMean(in[1]), graph.Mul(w(rc), graph.ZerosLike(graph.ReduceAllMean(in[0]))))
		}, train.Options{}))
	d, err := feed.Distribute(s, rowsDataset(t, s, 11, 4), feed.DistributeOptions{})
	require.NoError(t, err)
	it, err := feed.Iterate(ctx, s, d)
	require.NoError(t, err)
	defer it.Close()
	var losses []float64
	for {
		batch, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		loss, err := step.Run(ctx, batch.([]any)...)
		require.NoError(t, err)
		value, err := loss.Float64(ctx)
		require.NoError(t, err)
		losses = append(losses, value)
	}
	assert.Equal(t, []float64{1.5, 5.5, 9}, losses)
	// The program for the last batch can be compiled in advance, from shapes.
	c, err := step.Compiled(ctx, shapes.Make(dtypes.Float32, 3, 4), shapes.Make(dtypes.Float32, 3))
	require.NoError(t, err)
	assert.Equal(t, []int{2, 4}, c.Module.Arguments[0].LocalDims)
}
