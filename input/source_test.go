package input_test

import (
	"context"
	"fmt"
	"io"
	"iter"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestIteratorElementsAreHeldAgainstTheSpec(t *testing.T) {
	spec := input.Leaf(input.TensorSpec{Kind: input.Int64, Dims: []int{input.Unknown, 2}})
	for name, e := range map[string]input.Element{
		"kind":      input.Leaf(input.Vector[int32](1, 2)),
		"rank":      input.Leaf(input.Vector[int64](1, 2)),
		"structure": input.Tuple[input.Tensor](),
	} {
		seq := func(context.Context, input.Pass) iter.Seq2[input.Element, error] {
			return func(yield func(input.Element, error) bool) { yield(e, nil) }
		}
		for _, err := range input.FromSeq(seq, input.SeqOptions{Spec: spec}).All(context.Background()) {
			assert.ErrorContains(t, err, "spec", name)
		}
		for _, err := range input.FromElements(e).Map(func(_ context.Context, e input.Element) (input.Element,
			error) {
			return e, nil
		}, input.MapOptions{Spec: spec}).All(context.Background()) {
			assert.ErrorContains(t, err, "spec", name)
		}
	}
}

func TestSourceOfOnesOwn(t *testing.T) {
	ds := input.New(constant{}).Take(3)
	assert.Equal(t, "[[7] [7] [7]]", fmt.Sprint(ints(t, ds)))
	assert.Equal(t, input.Cardinality(3), ds.Info().Cardinality)
}

type constant struct{}

func (constant) Info() input.Info {
	return input.Info{Cardinality: input.Infinite, Spec: input.Leaf(input.TensorSpec{Kind: input.Int64})}
}

func (constant) Open(context.Context, input.Pass, input.State) (input.Iterator, error) {
	return constant{}, nil
}

func (constant) Next(context.Context) (input.Element, error) {
	return input.Leaf(input.Scalar[int64](7)), nil
}

func (constant) State() (input.State, error) { return input.State{Op: "constant"}, nil }

func (constant) Close() error { return nil }

func TestSeqIsStoppedAtClose(t *testing.T) {
	stopped := false
	seq := func(ctx context.Context, _ input.Pass) iter.Seq2[input.Element, error] {
		return func(yield func(input.Element, error) bool) {
			defer func() { stopped = ctx.Err() != nil }()
			for yield(input.Leaf(input.Scalar[int32](1)), nil) {
			}
		}
	}
	it, err := input.FromSeq(seq, input.SeqOptions{Count: -1}).Open(context.Background())
	require.NoError(t, err)
	_, err = it.Next(context.Background())
	require.NoError(t, err)
	require.NoError(t, it.Close())
	assert.True(t, stopped)
	_, err = it.Next(context.Background())
	assert.NotEqual(t, io.EOF, err)
	assert.Error(t, err)
}
