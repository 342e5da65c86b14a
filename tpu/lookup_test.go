package tpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLookupOfMissingDeviceFails(t *testing.T) {
	topology, err := NewTopology(TopologyOptions{MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{{1}}}})
	require.NoError(t, err)
	assert.Equal(t, []Coordinates{{}}, topology.MissingDevices())
	_, err = topology.TaskOrdinalAtCoordinates(Coordinates{})
	assert.ErrorContains(t, err, "missing")
	_, err = topology.DeviceIDAtCoordinates(Coordinates{2})
	assert.ErrorContains(t, err, "outside")
	name, err := topology.CPUDeviceNameAtCoordinates(Coordinates{1}, "")
	require.NoError(t, err)
	assert.Equal(t, "/task:0/device:CPU:0", name)
}
