package tpu

import (
	"encoding/hex"
	"math/rand/v2"
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

func TestLogicalTopologyRefuses(t *testing.T) {
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
		var bad *TopologyError
		assert.ErrorAs(t, err, &bad, name)
	}
}

func TestNewTopologyRefuses(t *testing.T) {
	one, two := Coordinates{}, Coordinates{1}
	for name, options := range map[string]TopologyOptions{
		"repeated place":  {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one, one}}},
		"negative place":  {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{{-1}}}},
		"outside":         {MeshShape: []int{1, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{two}}},
		"uneven tasks":    {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one}, {}}},
		"repeated id":     {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one, two}}, DeviceIDs: [][]int{{4, 4}}},
		"negative id":     {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one, two}}, DeviceIDs: [][]int{{4, -4}}},
		"too few ids":     {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one, two}}, DeviceIDs: [][]int{{4}}},
		"ids of no tasks": {MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{one, two}}, DeviceIDs: [][]int{}},
		"huge mesh":       {MeshShape: []int{1 << 40, 1 << 40, 1, 1}},
	} {
		_, err := NewTopology(options)
		var bad *TopologyError
		assert.ErrorAs(t, err, &bad, name)
	}
}

func TestMissingDevicesAreErrorsNotMinusOne(t *testing.T) {
	topology, err := NewTopology(TopologyOptions{MeshShape: []int{2, 1, 1, 1}, DeviceCoordinates: [][]Coordinates{{{1}}}})
	require.NoError(t, err)
	assert.Equal(t, []Coordinates{{}}, topology.MissingDevices())
	_, err = topology.TaskOrdinalAtCoordinates(Coordinates{})
	assert.ErrorContains(t, err, "missing")
	_, err = topology.DeviceIDAtCoordinates(Coordinates{2})
	assert.ErrorContains(t, err, "outside")
	name, err := topology.CPUDeviceNameAtTask(0, "")
	require.NoError(t, err)
	assert.Equal(t, "/task:0/device:CPU:0", name)
	_, err = topology.CPUDeviceNameAtTask(1, "")
	assert.Error(t, err)
}

func TestDeviceAssignmentRefusesBadIndices(t *testing.T) {
	a, err := BuildDeviceAssignment(logical(t, 2, 1, 1, 2), AssignmentOptions{Replicas: 2})
	require.NoError(t, err)
	_, err = a.DeviceID(2, 0)
	assert.ErrorContains(t, err, "no replica 2")
	_, err = a.Partition(0, 1)
	assert.ErrorContains(t, err, "no logical core 1")
	_, err = a.LookupReplicas(0, -1)
	assert.Error(t, err)
	_, _, ok := a.Lookup(99)
	assert.False(t, ok)
	p, err := a.Partition(1, 0)
	require.NoError(t, err)
	assert.Equal(t, 1, p)
	_, err = NewDeviceAssignment(a.Topology(), [][]Coordinates{{{}}, {}})
	assert.ErrorContains(t, err, "same number")
	twice, err := NewDeviceAssignment(a.Topology(), [][]Coordinates{{{}}, {{}}})
	require.NoError(t, err)
	assert.ErrorContains(t, twice.Validate(), "the core at (0,0,0,0)")
}

func TestTopologyProtoRoundTrips(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for range 200 {
		topology := randomTopology(t, rng)
		wire := topology.MarshalProto()
		back, err := ParseTopologyProto(wire)
		require.NoError(t, err)
		require.Equal(t, topology.DeviceCoordinates(), back.DeviceCoordinates())
		require.Equal(t, topology.MeshShape(), back.MeshShape())
		require.Equal(t, wire, back.MarshalProto())
	}
}

func FuzzParseTopologyProto(f *testing.F) {
	for _, seed := range []string{
		"0a04010101021001180222080000000000000001", "0a040001010110011801220400000000",
		"0a040101010110ffffffffffffffffff011801220400000000", "0a0402020201", "2a00", "0801080108010801100118012000200020002000",
	} {
		wire, err := hex.DecodeString(seed)
		require.NoError(f, err)
		f.Add(wire)
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		topology, err := ParseTopologyProto(wire)
		if err != nil {
			return
		}
		back, err := ParseTopologyProto(topology.MarshalProto())
		require.NoError(t, err)
		require.True(t, topology.Equal(back))
	})
}

func TestNamesAndOrdersPrint(t *testing.T) {
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
		var bad *TopologyError
		assert.ErrorAs(t, err, &bad, cut)
	}
}
