package tpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLogicalTopologyNumbersDevicesRowMajor(t *testing.T) {
	topology, err := LogicalTopology(LogicalOptions{Devices: 8, Tasks: 2})
	require.NoError(t, err)
	assert.Equal(t, [4]int{4, 1, 1, 2}, topology.MeshShape())
	assert.Equal(t, 2, topology.NumTasks())
	for id := range 8 {
		c, ok := topology.CoordinatesOfDevice(id)
		require.True(t, ok)
		assert.Equal(t, Coordinates{id / 2, 0, 0, id % 2}, c)
		task, ok := topology.TaskOfDevice(id)
		require.True(t, ok)
		assert.Equal(t, id/4, task)
	}
	_, ok := topology.CoordinatesOfDevice(8)
	assert.False(t, ok)
	_, ok = topology.TaskOfDevice(-1)
	assert.False(t, ok)
	odd, err := LogicalTopology(LogicalOptions{Devices: 3})
	require.NoError(t, err)
	assert.Equal(t, [4]int{3, 1, 1, 1}, odd.MeshShape())
	assert.Equal(t, "Topology(logical, mesh 3x1x1x1, 1 tasks of 3 devices)", odd.String())
	assert.Equal(t, [][]int{{0, 1, 2}}, odd.DeviceIDs())
}

func TestLogicalTopologyRejectsInvalidOptions(t *testing.T) {
	for name, options := range map[string]LogicalOptions{
		"nothing":          {},
		"negative devices": {Devices: -2},
		"other size":       {Devices: 8, MeshShape: []int{2, 2, 1, 1}},
		"rank":             {MeshShape: []int{2, 2}},
		"tasks":            {Devices: 8, Tasks: 3},
		"negative tasks":   {Devices: 8, Tasks: -1},
		"too large":        {MeshShape: []int{1 << 13, 1 << 13, 1, 1}},
	} {
		_, err := LogicalTopology(options)
		assert.ErrorIs(t, err, ErrTopology, name)
	}
}
