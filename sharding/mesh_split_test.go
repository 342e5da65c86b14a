package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestAnyNegativeDimensionOfAMeshSplitIsFree(t *testing.T) {
	want, err := sharding.OpMeshSplit([]int{2, 2}, nil, []int{-1, 1, -1}, nil)
	require.NoError(t, err)
	got, err := sharding.OpMeshSplit([]int{2, 2}, nil, []int{-2, 1, -7}, nil)
	require.NoError(t, err)
	assert.True(t, want.Equal(got))
	_, err = sharding.OpMeshSplit([]int{2, 2}, nil, []int{0, 0}, nil)
	assert.ErrorContains(t, err, "use each of 0 to 1 once")
}

func TestTheTileOfAScalarIsWhole(t *testing.T) {
	op, err := sharding.OpTile(nil, []int{3})
	require.NoError(t, err)
	assert.Equal(t, "{replicated}", op.Canonical().String())
	ranges, holds, err := op.IndexRanges([]int{}, 3)
	require.NoError(t, err)
	assert.True(t, holds)
	assert.Empty(t, ranges)
	back, err := sharding.ParseOpShardingProto(op.MarshalProto())
	require.NoError(t, err)
	assert.True(t, back.Equal(op))
}
