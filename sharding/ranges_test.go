package sharding_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestIndexRangesFollowAxisOrder(t *testing.T) {
	m := mesh(t, sharding.Axis{Name: "a", Size: 2}, sharding.Axis{Name: "b", Size: 3})
	shape := []int{12, 4}
	local, err := sharding.ShardShape(m, sharding.P([]string{"b", "a"}, nil), shape)
	require.NoError(t, err)
	assert.Equal(t, []int{2, 4}, local)
	// Device 4 has the coordinates a=1, b=1. With b as the major axis it holds shard 1*2+1.
	ranges, err := sharding.IndexRanges(m, sharding.P([]string{"b", "a"}, nil), shape, 4)
	require.NoError(t, err)
	assert.Equal(t, []sharding.Range{{6, 8}, {0, 4}}, ranges)
	assert.Equal(t, "6:8", ranges[0].String())
	// With a as the major axis it holds shard 1*3+1.
	ranges, err = sharding.IndexRanges(m, sharding.P([]string{"a", "b"}, nil), shape, 4)
	require.NoError(t, err)
	assert.Equal(t, []sharding.Range{{8, 10}, {0, 4}}, ranges)
	_, err = sharding.IndexRanges(m, sharding.P("a", nil), shape, 6)
	assert.ErrorContains(t, err, "no device 6")
}

func TestIndexRangesPartitionTheTensor(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		m := randomMesh(t, rng)
		spec, shape := randomSpec(t, rng, m)
		factor, err := sharding.ReplicationFactor(m, spec)
		require.NoError(t, err)
		local, err := sharding.ShardShape(m, spec, shape)
		require.NoError(t, err)
		held := map[[3]int][]int{}
		for device := range m.Size() {
			ranges, err := sharding.IndexRanges(m, spec, shape, device)
			require.NoError(t, err)
			for i, r := range ranges {
				require.Equal(t, local[i], r.Len())
			}
			forEachIndex(ranges, func(index [3]int) { held[index] = append(held[index], device) })
		}
		elements := 1
		for _, size := range shape {
			elements *= size
		}
		require.Len(t, held, elements)
		for _, devices := range held {
			require.Len(t, devices, factor)
		}
	}
}

func forEachIndex(ranges []sharding.Range, visit func([3]int)) {
	full := [3]sharding.Range{{0, 1}, {0, 1}, {0, 1}}
	copy(full[:], ranges)
	for i := full[0].Start; i < full[0].Stop; i++ {
		for j := full[1].Start; j < full[1].Stop; j++ {
			for k := full[2].Start; k < full[2].Stop; k++ {
				visit([3]int{i, j, k})
			}
		}
	}
}

func TestBytesPerDevice(t *testing.T) {
	m := mesh2x4(t)
	n, err := sharding.BytesPerDevice(m, sharding.P("replica", "logical"), []int{8, 16}, 4)
	require.NoError(t, err)
	assert.EqualValues(t, 8*16*4/8, n)
	_, err = sharding.BytesPerDevice(m, sharding.P("replica", "logical"), []int{8, 6}, 4)
	assert.Error(t, err)
	_, err = sharding.BytesPerDevice(m, sharding.P(nil), []int{8}, 0)
	assert.ErrorContains(t, err, "bytes per element")
	_, err = sharding.BytesPerDevice(m, sharding.P(nil, nil), []int{math.MaxInt, 2}, 4)
	assert.ErrorContains(t, err, "int64")
	n, err = sharding.BytesPerDevice(m, sharding.P(nil, nil), []int{math.MaxInt, 0}, 1)
	assert.NoError(t, err)
	assert.Zero(t, n)
}

func TestReplicationFactorRejectsRepeatedAxis(t *testing.T) {
	m := mesh2x4(t)
	_, err := sharding.ReplicationFactor(m, sharding.P("replica", "replica"))
	assert.Error(t, err)
}
