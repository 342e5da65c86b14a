package gomlxdata_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/train"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/input/gomlxdata"
)

// batches is a GoMLX dataset of n batches of two rows.
type batches struct {
	n    int
	spec any
	err  error
	made []*tensors.Tensor
}

func (b *batches) Name() string { return "batches" }

func (b *batches) Iter() iter.Seq2[train.Batch, error] {
	return func(yield func(train.Batch, error) bool) {
		for i := range b.n {
			x := tensors.FromFlatDataAndDimensions([]float32{float32(i), 1, float32(i), 2}, 2, 2)
			y := tensors.FromFlatDataAndDimensions([]int32{int32(i), int32(-i)}, 2)
			b.made = append(b.made, x, y)
			if !yield(train.Batch{Inputs: []*tensors.Tensor{x}, Labels: []*tensors.Tensor{y}, Spec: b.spec}, nil) {
				return
			}
		}
		if b.err != nil {
			yield(train.Batch{}, b.err)
		}
	}
}

func TestTrainDatasetIsDistributed(t *testing.T) {
	src := &batches{n: 3}
	d, err := input.Distribute(gomlxdata.FromTrain(src, gomlxdata.Options{}), input.Options{Replicas: 2})
	require.NoError(t, err)
	var got []string
	for step, err := range d.All(context.Background()) {
		require.NoError(t, err)
		for _, e := range step.Replicas {
			got = append(got, fmt.Sprint(e.At(0).At(0).Leaf().Flat(), e.At(1).At(0).Leaf().Flat()))
		}
	}
	assert.Equal(t, []string{"[0 1] [0]", "[0 2] [0]", "[1 1] [1]", "[1 2] [-1]", "[2 1] [2]", "[2 2] [-2]"}, got)
	for i, made := range src.made {
		assert.Error(t, made.CheckValid(), "tensor %d is not freed", i)
	}
}

func TestTrainDatasetResumes(t *testing.T) {
	ctx := context.Background()
	ds := gomlxdata.FromTrain(&batches{n: 3}, gomlxdata.Options{})
	it, err := ds.Open(ctx)
	require.NoError(t, err)
	_, err = it.Next(ctx)
	require.NoError(t, err)
	state, err := it.State()
	require.NoError(t, err)
	require.NoError(t, it.Close())
	it, err = ds.OpenAt(ctx, input.Pass{}, state)
	require.NoError(t, err)
	e, err := it.Next(ctx)
	require.NoError(t, err)
	assert.Equal(t, []int32{1, -1}, e.At(1).At(0).Leaf().Flat())
	_, err = it.Next(ctx)
	require.NoError(t, err)
	_, err = it.Next(ctx)
	assert.Equal(t, io.EOF, err)
	require.NoError(t, it.Close())
}

func TestTrainDatasetErrors(t *testing.T) {
	read := func(ds input.Dataset) (err error) {
		for _, err = range ds.All(context.Background()) {
		}
		return err
	}
	broken := errors.New("broken")
	assert.ErrorIs(t, read(gomlxdata.FromTrain(&batches{n: 1, err: broken}, gomlxdata.Options{})), broken)
	assert.ErrorContains(t, read(gomlxdata.FromTrain(&batches{n: 1, spec: "task"}, gomlxdata.Options{})), "IgnoreSpec")
	assert.NoError(t, read(gomlxdata.FromTrain(&batches{n: 1, spec: "task"}, gomlxdata.Options{IgnoreSpec: true})))
}

func TestDatasetFeedsGoMLX(t *testing.T) {
	ds := gomlxdata.ToTrain(context.Background(), "numbers", input.Range(5).Shuffle(5, input.ShuffleOptions{}).Batch(2,
		false))
	assert.Equal(t, "numbers", ds.Name())
	epoch := func() (out []int64) {
		for batch, err := range ds.Iter() {
			require.NoError(t, err)
			require.Len(t, batch.Inputs, 1)
			require.Empty(t, batch.Labels)
			out = append(out, tensors.MustCopyFlatData[int64](batch.Inputs[0])...)
			require.NoError(t, batch.Finalize())
		}
		return out
	}
	first, second := epoch(), epoch()
	assert.ElementsMatch(t, []int64{0, 1, 2, 3, 4}, first)
	assert.ElementsMatch(t, first, second)
	assert.NotEqual(t, first, second, "every epoch has its own order")
	batch, err := gomlxdata.ToBatch(input.Tuple(input.Leaf(input.Scalar[int32](1)), input.Leaf(input.Scalar[int32](2))))
	require.NoError(t, err)
	assert.Len(t, batch.Inputs, 1)
	assert.Len(t, batch.Labels, 1)
	_, err = gomlxdata.ToBatch(input.Tuple(input.Leaf(input.Scalar[int32](1)), input.Leaf(input.Scalar("no"))))
	assert.Error(t, err)
}

func ExampleFromTrain() {
	ds := gomlxdata.FromTrain(&batches{n: 1}, gomlxdata.Options{BatchSize: 2})
	for e, err := range ds.All(context.Background()) {
		fmt.Println(e, err)
	}
	// Output: ((float32[2 2]), (int32[2])) <nil>
}
