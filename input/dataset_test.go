package input_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/conformance/inputcases"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ints reads a dataset of int64 elements as one list for each element.
func ints(t *testing.T, ds input.Dataset) [][]int64 {
	t.Helper()
	out := [][]int64{}
	for e, err := range ds.All(context.Background()) {
		require.NoError(t, err)
		v, err := input.Flat[int64](e.Leaf())
		require.NoError(t, err)
		out = append(out, v)
	}
	return out
}

func TestOperations(t *testing.T) {
	for name, c := range map[string]struct {
		ds   input.Dataset
		want string
		card input.Cardinality
		spec string
	}{
		"range":            {input.Range(3), "[[0] [1] [2]]", 3, "int64[]"},
		"batch":            {input.Range(5).Batch(2, false), "[[0 1] [2 3] [4]]", 3, "int64[?]"},
		"batch full":       {input.Range(5).Batch(2, true), "[[0 1] [2 3]]", 2, "int64[2]"},
		"batch of batches": {input.Range(5).Batch(2, true).Batch(2, true), "[[0 1 2 3]]", 1, "int64[2 2]"},
		"unbatch":          {input.Range(5).Batch(2, true).Unbatch(), "[[0] [1] [2] [3]]", 4, "int64[]"},
		"repeat":           {input.Range(2).Repeat(2), "[[0] [1] [0] [1]]", 4, "int64[]"},
		"take":             {input.Range(2).Repeat(-1).Take(3), "[[0] [1] [0]]", 3, "int64[]"},
		"take more":        {input.Range(2).Take(3), "[[0] [1]]", 2, "int64[]"},
		"skip":             {input.Range(4).Skip(3), "[[3]]", 1, "int64[]"},
		"skip all":         {input.Range(4).Skip(9), "[]", 0, "int64[]"},
		"shard":            {input.Range(5).Shard(2, 1), "[[1] [3]]", 2, "int64[]"},
		"concatenate": {input.Range(2).Concatenate(input.Range(1), input.Range(2)), "[[0] [1] [0] [0] [1]]", 5,
			"int64[]"},
		"cache":          {input.Range(2).Cache().Repeat(2), "[[0] [1] [0] [1]]", 4, "int64[]"},
		"prefetch":       {input.Range(3).Prefetch(9), "[[0] [1] [2]]", 3, "int64[]"},
		"prefetch none":  {input.Range(3).Prefetch(0), "[[0] [1] [2]]", 3, "int64[]"},
		"rebatch":        {input.Range(5).Batch(5, true).Rebatch(3), "[[0 1] [2 3] [4]]", 3, "int64[?]"},
		"rebatch evenly": {input.Range(6).Batch(6, true).Rebatch(3), "[[0 1] [2 3] [4 5]]", 3, "int64[2]"},
		"sizes": {input.Range(7).Batch(3, false).RebatchSizes([]int{2, 0}), "[[0 1] [] [2 3] [] [4 5] [] [6]]",
			input.UnknownCardinality, "int64[?]"},
		"sizes of nothing": {input.Range(0).Batch(3, false).RebatchSizes([]int{0, 2}), "[[]]", input.UnknownCardinality,
			"int64[?]"},
		"sizes static": {input.Range(6).Batch(3, true).RebatchSizes([]int{1}), "[[0] [1] [2] [3] [4] [5]]",
			input.UnknownCardinality, "int64[1]"},
		"ragged": {input.FromElements(input.Leaf(input.Vector[int64](1, 2)), input.Leaf(input.Vector[int64](3))),
			"[[1 2] [3]]", 2, "int64[?]"},
		"mixed batches": {input.Range(2).Batch(1, true).Concatenate(input.Range(2).Batch(2, true)), "[[0] [1] [0 1]]", 3,
			"int64[?]"},
	} {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, c.want, fmt.Sprint(ints(t, c.ds)))
			assert.Equal(t, c.card, c.ds.Info().Cardinality)
			assert.Equal(t, c.spec, c.ds.Info().Spec.String())
		})
	}
	assert.Equal(t, input.Infinite, input.Range(1).Repeat(-1).Info().Cardinality)
	assert.Equal(t, "infinite", input.Infinite.String())
	assert.Equal(t, input.Cardinality(0), input.Range(0).Repeat(-1).Info().Cardinality)
}

func TestWrongArgumentsAreTheDatasetsError(t *testing.T) {
	good := input.Range(4)
	for name, ds := range map[string]input.Dataset{
		"range":      input.Range(-1),
		"batch":      good.Batch(0, false),
		"shuffle":    good.Shuffle(0, input.ShuffleOptions{}),
		"take":       good.Take(-1),
		"skip":       good.Skip(-1),
		"prefetch":   good.Prefetch(-1),
		"map":        good.Map(nil, input.MapOptions{}),
		"parallel":   good.Map(inputcases.OnInts(nil), input.MapOptions{Parallel: -1}),
		"shard":      good.Shard(2, 2),
		"shard none": good.Shard(0, 0),
		"rebatch":    good.Rebatch(0),
		"sizes":      good.RebatchSizes([]int{0, 0}),
		"negative":   good.RebatchSizes([]int{1, -1}),
		"no sizes":   good.RebatchSizes(nil),
		"slices":     input.FromSlices(input.Leaf(input.Scalar[int32](1))),
		"uneven": input.FromSlices(input.Tuple(input.Leaf(input.Vector[int32](1)),
			input.Leaf(input.Vector[int32](1, 2)))),
		"seq":   input.FromSeq(nil, input.SeqOptions{}),
		"fixed": input.FixedRecords(nil, input.FixedOptions{}),
		"csv":   input.CSV(nil, input.CSVOptions{}),
		"csv twice": input.CSV(nil, input.CSVOptions{Columns: []input.Column{{Name: "a", Kind: input.Bool},
			{Name: "a", Kind: input.Bool}}}),
		"csv kind":    input.CSV(nil, input.CSVOptions{Columns: []input.Column{{Name: "a"}}}),
		"concatenate": good.Concatenate(good.Take(-1)),
	} {
		t.Run(name, func(t *testing.T) {
			require.Error(t, ds.Err())
			derived := ds.Repeat(2).Cache().ShardHint().Unbatch().Prefetch(1)
			assert.Equal(t, ds.Err(), derived.Err(), "what is made of it keeps the reason")
			_, err := derived.Open(context.Background())
			assert.Equal(t, ds.Err(), err)
			_, err = input.Distribute(derived.Batch(1, false), input.Options{})
			assert.Equal(t, ds.Err(), err)
		})
	}
}

func TestElementsThatDoNotFitABatchAreErrors(t *testing.T) {
	for name, list := range map[string][]input.Element{
		"kinds":      {input.Leaf(input.Scalar[int32](1)), input.Leaf(input.Scalar[int64](1))},
		"shapes":     {input.Leaf(input.Vector[int32](1)), input.Leaf(input.Vector[int32](1, 2))},
		"structures": {input.Leaf(input.Scalar[int32](1)), input.Tuple(input.Leaf(input.Scalar[int32](1)))},
		"keys": {input.Dict(map[string]input.Element{"a": input.Leaf(input.Scalar[int32](1))}),
			input.Dict(map[string]input.Element{"b": input.Leaf(input.Scalar[int32](1))})},
		"nothing": {input.Leaf(input.Tensor{})},
	} {
		it, err := input.FromElements(list...).Batch(2, false).Open(context.Background())
		require.NoError(t, err)
		_, err = it.Next(context.Background())
		require.Error(t, err, name)
		_, again := it.Next(context.Background())
		assert.Equal(t, err, again, "the error stays")
		_, err = it.State()
		assert.Error(t, err, "no position after an error")
		require.NoError(t, it.Close())
		require.NoError(t, it.Close())
	}
}

func TestNextEndsWithItsContext(t *testing.T) {
	block := make(chan struct{})
	ds := input.Range(5).Map(func(ctx context.Context, e input.Element) (input.Element, error) {
		select {
		case <-block:
		case <-ctx.Done():
		}
		return e, ctx.Err()
	}, input.MapOptions{}).Prefetch(1)
	it, err := ds.Open(context.Background())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = it.Next(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = it.State()
	assert.NoError(t, err, "nothing was read yet")
	require.NoError(t, it.Close())
	close(block)
}

func TestZipKnowsWhatItsPartsHaveInCommon(t *testing.T) {
	for name, c := range map[string]struct {
		ds    input.Dataset
		card  input.Cardinality
		batch int
		spec  string
	}{
		"one":             {input.Zip(input.Range(3)), 3, 0, "(int64[])"},
		"the shortest":    {input.Zip(input.Range(3), input.Range(2)), 2, 0, "(int64[], int64[])"},
		"with an endless": {input.Zip(input.Range(3).Repeat(-1), input.Range(2)), 2, 0, "(int64[], int64[])"},
		"endless": {input.Zip(input.Range(3).Repeat(-1), input.Range(2).Repeat(-1)), input.Infinite, 0,
			"(int64[], int64[])"},
		"batches": {input.Zip(input.Range(8).Batch(4, true), input.Range(8).Batch(4, true)), 2, 4,
			"(int64[4], int64[4])"},
		"batches of others": {input.Zip(input.Range(8).Batch(4, true), input.Range(8).Batch(2, true)), 2, input.Unknown,
			"(int64[4], int64[2])"},
		"rows and a batch": {input.Zip(input.Range(8).Batch(4, true), input.Range(8)), 2, 0, "(int64[4], int64[])"},
	} {
		info := c.ds.Info()
		assert.Equal(t, c.card, info.Cardinality, name)
		assert.Equal(t, c.batch, info.BatchSize, name)
		assert.Equal(t, c.spec, info.Spec.String(), name)
	}
	assert.ErrorContains(t, input.Zip().Err(), "no datasets")
	assert.ErrorContains(t, input.Zip(input.Range(2), input.Range(2).Take(-1)).Err(), "take")
}
