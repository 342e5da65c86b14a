package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestTileOfScalarIsReplicated(t *testing.T) {
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
