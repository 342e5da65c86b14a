package sharding_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func TestSplitToLogicalDevicesChecksInOrder(t *testing.T) {
	tests := map[string]struct {
		shape, partitions []int
		count             int
		want              string
	}{
		"unknown rank comes first":     {nil, []int{3}, 2, "rank is unknown"},
		"rank before divisibility":     {[]int{5, 6}, []int{2}, 2, "pass one for each of its 2 dimensions"},
		"divisibility before product":  {[]int{5, 6}, []int{2, 3}, 2, "size 5 is not divisible by 2"},
		"product":                      {[]int{4, 6}, []int{2, 3}, 2, "product of the partitions [2 3]"},
		"product does not overflow":    {[]int{0, 0, 0}, []int{1 << 62, 4, 2}, 2, "product"},
		"zero":                         {[]int{4}, []int{0}, 1, "split into 0 shards"},
		"negatives with right product": {[]int{4, 6}, []int{-2, -1}, 2, "split into -2 shards"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := sharding.SplitToLogicalDevices(test.shape, test.partitions, test.count)
			assert.ErrorContains(t, err, test.want)
		})
	}
	op, err := sharding.SplitToLogicalDevices([]int{}, []int{}, 1)
	require.NoError(t, err)
	assert.Equal(t, "{replicated}", op.String())
	_, err = sharding.AssignToLogicalDevice(-1, 2)
	assert.ErrorContains(t, err, "no logical device -1")
}

func TestOpSplitAcceptsNegativeAndUnevenDimensions(t *testing.T) {
	op, err := sharding.OpSplit([]int{4, 7}, -1, 2)
	require.NoError(t, err)
	assert.Equal(t, "{devices=[1,2]0,1}", op.String())
	for _, bad := range [][2]int{{2, 2}, {-3, 2}, {0, 0}, {0, 5}} {
		_, err := sharding.OpSplit([]int{4, 7}, bad[0], bad[1])
		assert.Error(t, err, bad)
	}
	_, err = sharding.OpMeshSplit([]int{2, 2}, nil, []int{0, 0}, nil)
	assert.ErrorContains(t, err, "is used twice")
	_, err = sharding.OpMeshSplit([]int{2, 2}, []int{0}, []int{0}, nil)
	assert.ErrorContains(t, err, "list 4 devices")
}

func TestOpMeshSplitDoesNotSplitNegativeDimensions(t *testing.T) {
	want, err := sharding.OpMeshSplit([]int{2, 2}, nil, []int{-1, 1, -1}, nil)
	require.NoError(t, err)
	got, err := sharding.OpMeshSplit([]int{2, 2}, nil, []int{-2, 1, -7}, nil)
	require.NoError(t, err)
	assert.True(t, want.Equal(got))
	_, err = sharding.OpMeshSplit([]int{2, 2}, nil, []int{0, 0}, nil)
	assert.ErrorContains(t, err, "use each of 0 to 1 once")
}
