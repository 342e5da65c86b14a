package tpu

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNewTopologyRejectsInvalidOptions(t *testing.T) {
	one, two := Coordinates{}, Coordinates{1}
	for name, options := range map[string]TopologyOptions{
		"repeated place": {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one, one}}},
		"negative place": {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{{-1}}}},
		"outside":        {MeshShape: []int{1, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{two}}},
		"uneven tasks":   {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one}, {}}},
		"repeated id": {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one, two}},
			DeviceIDs: [][]int{{4, 4}}},
		"negative id": {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one, two}},
			DeviceIDs: [][]int{{4, -4}}},
		"too few ids": {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one, two}},
			DeviceIDs: [][]int{{4}}},
		"ids of no tasks": {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one, two}},
			DeviceIDs: [][]int{}},
		"huge mesh": {MeshShape: []int{1 << 40, 1 << 40, 1, 1}},
	} {
		_, err := NewTopology(options)
		assert.ErrorIs(t, err, ErrTopology, name)
	}
}

func TestStringMethods(t *testing.T) {
	assert.Equal(t, []string{"AUTO", "RING", "MESH", "DeviceOrder(9)"},
		[]string{AutoOrder.String(), RingOrder.String(), MeshOrder.String(), DeviceOrder(9).String()})
	a, err := ParseAccelerator("v5p-16")
	require.NoError(t, err)
	assert.Equal(t, [3]int{2, 2, 2}, a.Shape())
	topology, err := a.Topology()
	require.NoError(t, err)
	assert.Equal(t, "v5p:2x2x2", topology.Name())
	for _, cut := range []string{"08", "0a05", "10", "1005", "0a0101", "1200", "2203000000", "10ffffffff7f"} {
		wire, err := hex.DecodeString(cut)
		require.NoError(t, err)
		_, err = ParseTopologyProto(wire)
		assert.ErrorIs(t, err, ErrTopology, cut)
	}
}
