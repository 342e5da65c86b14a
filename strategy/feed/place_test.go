package feed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// A first batch without rows does not determine the number of rows for padding.
func TestABatchWithoutRowsIsPaddedToTheRowsOfTheOthers(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	batches := func(rows ...int) func(context.Context) iter.Seq2[input.Element, error] {
		return func(context.Context) iter.Seq2[input.Element, error] {
			return func(yield func(input.Element, error) bool) {
				for _, n := range rows {
					x, err := input.Zeros(input.Float32, n, 3)
					if !yield(input.Leaf(x), err) {
						return
					}
				}
			}
		}
	}
	for _, c := range []struct {
		rows []int
		opts feed.Options
	}{{[]int{4, 0, 4}, feed.Options{}}, {[]int{0, 4}, feed.Options{Rows: 2}}} {
		c.opts.Partial = feed.Pad
		f, err := feed.FromSeq(ctx, s, batches(c.rows...), input.SeqOptions{}, c.opts)
		require.NoError(t, err)
		for _, n := range c.rows {
			batch, err := f.Next(ctx)
			require.NoError(t, err)
			require.Equal(t, []int{n / 2, n / 2}, batch.Rows)
			for r := range 2 {
				x, err := batch.Values[0].Local(ctx, r)
				require.NoError(t, err)
				require.Equal(t, []int{2, 3}, x.Shape().Dimensions)
				mask, err := batch.Mask.Local(ctx, r)
				require.NoError(t, err)
				require.Equal(t, []bool{n > 0, n > 0}, mask.Value())
			}
		}
		require.NoError(t, f.Close())
	}
	f, err := feed.FromSeq(ctx, s, batches(0, 4), input.SeqOptions{}, feed.Options{Partial: feed.Pad})
	require.NoError(t, err)
	_, err = f.Next(ctx)
	require.ErrorContains(t, err, "option Rows")
	require.NoError(t, f.Close())
}

func TestPaddedBatchesHaveOneShapeAndAMask(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	for _, rows := range []int{0, 3} {
		f := open(t, s, pairs(7).Batch(4, false), feed.Options{Partial: feed.Pad, Rows: rows})
		batch, err := f.Next(ctx)
		require.NoError(t, err)
		require.Len(t, batch.Args(), 3)
		if rows == 0 { // two, the largest share of a batch of four
			require.Equal(t, []any{[]int32{0, 1}, []int32{2, 3}}, strategytest.Values(t, batch.Values[1], 2))
			require.Equal(t, []any{[]bool{true, true}, []bool{true, true}}, strategytest.Values(t, batch.Mask, 2))
		} else {
			require.Equal(t, []any{[]int32{0, 1, 0}, []int32{2, 3, 0}}, strategytest.Values(t, batch.Values[1], 2))
			require.Equal(t, []any{[]bool{true, true, false}, []bool{true, true, false}}, strategytest.Values(t, batch.Mask, 2))
		}
		batch, err = f.Next(ctx)
		require.NoError(t, err)
		require.Equal(t, []int{2, 1}, batch.Rows)
		if rows == 0 {
			require.Equal(t, []any{[]int32{4, 5}, []int32{6, 0}}, strategytest.Values(t, batch.Values[1], 2))
			require.Equal(t, []any{[]bool{true, true}, []bool{true, false}}, strategytest.Values(t, batch.Mask, 2))
			require.Equal(t, [][]float32{{6, 6.25, 6.5, 6.75}, {0, 0, 0, 0}}, strategytest.Values(t, batch.Values[0], 2)[1])
		}
		require.True(t, batch.Values[0].Shape().Equal(batch.Values[0].Shape()))
		_, err = f.Next(ctx)
		require.Equal(t, io.EOF, err)
	}

	// All full batches share a mask, which is valid until the feed is closed.
	f := open(t, s, pairs(22).Batch(4, false), feed.Options{Partial: feed.Pad})
	masks := 0
	for batch, err := range f.All(ctx) {
		require.NoError(t, err)
		full := []any{[]bool{true, true}, []bool{true, true}}
		if masks++; masks == 6 {
			full[0], full[1] = []bool{true, false}, []bool{true, false}
		}
		require.Equal(t, full, strategytest.Values(t, batch.Mask, 2), "batch %d", batch.Index)
	}
	require.Equal(t, 6, masks)

	// With nine rows and batches of four, the last batch has one row, and one replica has none.
	f = open(t, s, pairs(9).Batch(4, false), feed.Options{Partial: feed.Pad})
	require.Equal(t, [][]any{{[]int32{0, 1}, []int32{2, 3}}, {[]int32{4, 5}, []int32{6, 7}},
		{[]int32{8, 0}, []int32{0, 0}}}, labels(t, f, s))

	f = open(t, s, pairs(8).Batch(4, false), feed.Options{Partial: feed.Pad, Rows: 1})
	_, err := f.Next(ctx)
	require.ErrorContains(t, err, "2 rows")
}

func TestAnExactBatchIsASecondShape(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	f := open(t, s, pairs(6).Batch(4, false), feed.Options{})
	require.Equal(t, [][]any{{[]int32{0, 1}, []int32{2, 3}}, {[]int32{4}, []int32{5}}}, labels(t, f, s))

	f = open(t, s, pairs(7).Batch(4, false), feed.Options{})
	_, err := f.Next(ctx)
	require.NoError(t, err)
	state := f.State()
	for range 2 {
		_, err = f.Next(ctx)
		require.ErrorIs(t, err, feed.ErrPartial)
		require.ErrorContains(t, err, `feed: step 1: component "[0]" is [float32[2 4] float32[1 4]] on the replicas: `)
	}
	require.Equal(t, state, f.State(), "the position is before the batch that failed")
}

func TestUnevenBatchesAreFedAsTheyAre(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	ds, err := eager.Of(s).MakeNumpyDataset([]float32{1, 2, 3, 4, 5, 6, 7})
	require.NoError(t, err)
	f, err := feed.FromDataset(ctx, s, ds.Batch(4, false), feed.Options{Partial: feed.Uneven})
	require.NoError(t, err)
	defer f.Close()
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			w := rc.Scope().VariableWithValue("w", float32(0)).NodeValue(rc.Graph())
			mean := graph.ReduceAllMean(in[0])
			return graph.Add(mean, graph.Mul(w, graph.ZerosLike(mean)))
		}, train.Options{}))
	var losses []float64
	var rows [][]int
	for batch, err := range f.All(ctx) {
		require.NoError(t, err)
		loss, err := step.Run(ctx, batch.Args()...)
		require.NoError(t, err)
		value, err := loss.Float64(ctx)
		require.NoError(t, err)
		losses, rows = append(losses, value), append(rows, batch.Rows)
	}
	assert.Equal(t, []float64{2.5, 6}, losses)
	assert.Equal(t, [][]int{{2, 2}, {2, 1}}, rows)
}

// Several processes need one shape: each of them returns an error for an uneven batch, with the
// component's name.
func TestSeveralProcessesRefuseUnevenBatches(t *testing.T) {
	errs := strategytest.OnProcesses(t, plugintest.System(t, 4), simhost.Options{Processes: 2},
		strategy.Options{Replicas: 4}, func(ctx context.Context, s *strategy.TPUStrategy) error {
			d, err := feed.Distribute(s, input.Range(16).Batch(8, true), feed.DistributeOptions{})
			if err != nil {
				return err
			}
			_, err = feed.New(ctx, s, d, feed.Options{Partial: feed.Uneven})
			if err == nil || !strings.Contains(err.Error(), "feed: option Partial") {
				return fmt.Errorf("feed: %w", err)
			}
			step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
				func(_ *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
					return graph.ReduceAllMean(in[0])
				}, train.Options{}))
			_, err = step.Run(ctx, []float32{1, 2, 3})
			var argument *strategy.ArgumentError
			if !errors.As(err, &argument) || !strings.Contains(err.Error(), "3 rows does not divide among 4 replicas") {
				return fmt.Errorf("train step: %w", err)
			}
			return nil
		})
	strategytest.NoErrors(t, errs)
}
