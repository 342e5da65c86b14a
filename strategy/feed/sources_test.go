package feed_test

import (
	"context"
	"iter"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input/gomlxdata"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

// trainData is a GoMLX dataset of n batches of four.
type trainData int

func (d trainData) Name() string { return "data" }

func (d trainData) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for i := range int32(d) {
			batch := train.Batch{
				Inputs: []*tensors.Tensor{tensors.FromValue([][]float32{{float32(i)}, {1}, {2}, {3}})},
				Labels: []*tensors.Tensor{tensors.FromValue([]int32{i, 1, 2, 3})},
			}
			if !yield(batch, nil) {
				return
			}
		}
	}
}

func TestAGoMLXDatasetIsFed(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	f, err := feed.FromTrain(context.Background(), s, trainData(3), gomlxdata.Options{}, feed.Options{})
	require.NoError(t, err)
	defer f.Close()
	got := labels(t, f, s)
	require.Equal(t, [][]any{{[]int32{0, 1}, []int32{2, 3}}, {[]int32{1, 1}, []int32{2, 3}},
		{[]int32{2, 1}, []int32{2, 3}}}, got)
}
