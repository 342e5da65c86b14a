package input_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestCacheReadsItsInputOnce(t *testing.T) {
	var read atomic.Int32
	ds := input.Range(5).Map(func(_ context.Context, e input.Element) (input.Element, error) {
		read.Add(1)
		return e, nil
	}, input.MapOptions{}).Cache()
	assert.Len(t, ints(t, ds.Take(3)), 3)
	assert.EqualValues(t, 3, read.Load(), "an unfinished pass fills nothing")
	assert.Len(t, ints(t, ds.Repeat(4)), 20)
	assert.EqualValues(t, 8, read.Load())
	assert.Len(t, ints(t, ds), 5)
	assert.EqualValues(t, 8, read.Load())
}

func TestCacheHasOneOrderInAllPasses(t *testing.T) {
	open := func() input.Dataset {
		return input.Range(8).Shuffle(8, input.ShuffleOptions{Seed: 1}).Cache().Repeat(3)
	}
	ctx := context.Background()
	it, err := open().Open(ctx)
	require.NoError(t, err)
	first := drain(t, it, 8)
	assert.Equal(t, first, drain(t, it, 8))
	state, err := it.State()
	require.NoError(t, err)
	require.NoError(t, it.Close())

	it, err = open().OpenAt(ctx, input.Pass{}, state)
	require.NoError(t, err)
	assert.Equal(t, first, drain(t, it, 9), "a restore in the third pass, with nothing in the cache")
	require.NoError(t, it.Close())
	it, err = open().OpenAt(ctx, input.Pass{Epoch: 5}, input.State{})
	require.NoError(t, err)
	assert.Equal(t, first, drain(t, it, 8), "another epoch")
	require.NoError(t, it.Close())
}
