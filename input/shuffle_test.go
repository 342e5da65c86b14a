package input_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/input"
)

func TestShuffleIsAPermutationThatSeedAndEpochChoose(t *testing.T) {
	order := func(seed, epoch uint64, same bool) []string {
		it, err := input.Range(50).Shuffle(50, input.ShuffleOptions{Seed: seed,
			SameEachEpoch: same}).OpenAt(context.Background(), input.Pass{Epoch: epoch}, input.State{})
		require.NoError(t, err)
		defer it.Close()
		return drain(t, it, 1000)
	}
	assert.ElementsMatch(t, collect(t, input.Range(50)), order(1, 0, false))
	assert.Equal(t, order(1, 0, false), order(1, 0, false))
	assert.NotEqual(t, order(1, 0, false), order(2, 0, false))
	assert.NotEqual(t, order(1, 0, false), order(1, 1, false))
	assert.Equal(t, order(1, 0, true), order(1, 1, true))
	// The numbers are part of saved positions and of what several hosts agree on, so they must
	// never change.
	var first []int64
	for e, err := range input.Range(8).Shuffle(8, input.ShuffleOptions{Seed: 42}).All(context.Background()) {
		require.NoError(t, err)
		v, err := input.Flat[int64](e.Leaf())
		require.NoError(t, err)
		first = append(first, v[0])
	}
	assert.Equal(t, []int64{2, 5, 7, 0, 6, 1, 4, 3}, first)
}

func TestShuffleWithABigBufferIsUniform(t *testing.T) {
	const n, rounds = 4, 6000
	var count [n][n]int
	for seed := range uint64(rounds) {
		pos := 0
		for e, err := range input.Range(n).Shuffle(n, input.ShuffleOptions{Seed: seed}).All(context.Background()) {
			require.NoError(t, err)
			v, _ := input.Flat[int64](e.Leaf())
			count[v[0]][pos]++
			pos++
		}
	}
	for value, places := range count {
		for place, times := range places {
			assert.InDelta(t, rounds/n, times, 150, "value %d at place %d", value, place)
		}
	}
}
