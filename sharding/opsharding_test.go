package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestOpShardingAccessors(t *testing.T) {
	op, err := sharding.ParseOpSharding("{devices=[2,1,2,2]<=[8] last_tile_dims={manual, replicated}}")
	require.NoError(t, err)
	assert.Equal(t, sharding.KindTiled, op.Kind())
	assert.Equal(t, "tiled", op.Kind().String())
	assert.Equal(t, "Kind(9)", sharding.Kind(9).String())
	assert.Equal(t, []int{2, 1, 2, 2}, op.TileDims())
	assert.Equal(t, []int{2, 1}, op.TileShape())
	assert.Equal(t, []sharding.Kind{sharding.KindManual, sharding.KindReplicated}, op.Subgroups())
	assert.Equal(t, -1, op.Device())
	one, err := sharding.OpMaximal(3)
	require.NoError(t, err)
	assert.Equal(t, 3, one.Device())
	assert.Nil(t, one.TileDevices())
	tuple, err := sharding.OpTuple(op, one)
	require.NoError(t, err)
	_, err = sharding.OpTuple(tuple)
	assert.ErrorContains(t, err, "flatten")
	whole, err := sharding.OpTile([]int{1, 1}, nil)
	require.NoError(t, err)
	pair, err := sharding.OpTuple(whole, one)
	require.NoError(t, err)
	assert.Equal(t, "{{replicated}, {maximal device=3}}", pair.Canonical().String())
}
