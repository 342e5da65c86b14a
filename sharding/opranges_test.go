package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestOpIndexRangesRoundTilesUp(t *testing.T) {
	op, err := sharding.OpTile([]int{4}, nil)
	require.NoError(t, err)
	var got []sharding.Range
	for device := range 4 {
		ranges, holds, err := op.IndexRanges([]int{5}, device)
		require.NoError(t, err)
		assert.True(t, holds)
		got = append(got, ranges...)
	}
	assert.Equal(t, []sharding.Range{{Start: 0, Stop: 2}, {Start: 2, Stop: 4}, {Start: 4, Stop: 5}, {Start: 5, Stop: 5}},
		got)
	_, holds, err := op.IndexRanges([]int{5}, 4)
	require.NoError(t, err)
	assert.False(t, holds)
	_, _, err = op.IndexRanges([]int{5, 5}, 0)
	assert.ErrorContains(t, err, "tiles 1 dimensions")
	_, _, err = sharding.OpManual().IndexRanges([]int{5}, 0)
	assert.ErrorContains(t, err, "manual")
	_, _, err = op.IndexRanges([]int{-1}, 0)
	assert.Error(t, err)
}
