package tpu_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/tpu"
)

// libtpuTopology is a topology that libtpu reported. A test of package system writes
// testdata/topologies.
type libtpuTopology struct {
	Name        string
	Accelerator string
	Slices      int
	Chips       int
	Hosts       int
	Devices     int
	PerChip     int   `json:"devices_per_chip"`
	HBMBytes    int64 `json:"hbm_bytes"`
	Mesh        []int
	Tasks       [][][5]int // id, x, y, z, core
}

func (d libtpuTopology) topology(t *testing.T) tpu.Topology {
	t.Helper()
	var coords [][]tpu.Coordinates
	var ids [][]int
	for _, task := range d.Tasks {
		var row []tpu.Coordinates
		var numbers []int
		for _, device := range task {
			numbers = append(numbers, device[0])
			row = append(row, tpu.Coordinates{device[1], device[2], device[3], device[4]})
		}
		coords, ids = append(coords, row), append(ids, numbers)
	}
	topology, err := tpu.NewTopology(tpu.TopologyOptions{MeshShape: d.Mesh, DeviceCoordinates: coords, DeviceIDs: ids,
		Name: d.Name})
	require.NoError(t, err)
	return topology
}

func readTopologies(t *testing.T) []libtpuTopology {
	t.Helper()
	files, err := filepath.Glob("testdata/topologies/*.json")
	require.NoError(t, err)
	require.Len(t, files, 21)
	var all []libtpuTopology
	for _, file := range files {
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		var d libtpuTopology
		require.NoError(t, json.Unmarshal(b, &d), file)
		all = append(all, d)
	}
	return all
}

func TestAcceleratorTopologyMatchesLibtpu(t *testing.T) {
	for _, d := range readTopologies(t) {
		if d.Slices > 1 {
			continue // an Accelerator is one slice
		}
		t.Run(d.Name, func(t *testing.T) {
			a, err := tpu.ParseAccelerator(d.Name)
			require.NoError(t, err)
			assert.Equal(t, d.Accelerator, a.Type())
			assert.Equal(t, d.Chips, a.Chips())
			assert.Equal(t, d.Hosts, a.Hosts())
			assert.Equal(t, d.Devices, a.Devices())
			assert.Equal(t, d.PerChip, a.Generation().DevicesPerChip)
			// The runtime reserves a small part of the published memory.
			share := float64(d.HBMBytes) * float64(d.PerChip) / float64(a.Generation().HBMBytes)
			assert.InDelta(t, 0.97, share, 0.06, "fraction of the published memory")
			topology, err := a.Topology()
			require.NoError(t, err)
			real := d.topology(t)
			assert.Equal(t, real.MeshShape(), topology.MeshShape())
			assert.Equal(t, real.DeviceCoordinates(), topology.DeviceCoordinates())
			assert.Equal(t, real.DeviceIDs(), topology.DeviceIDs())
		})
	}
}

func TestFitMatchesNumberOfChips(t *testing.T) {
	for _, d := range readTopologies(t) {
		topology := d.topology(t)
		shape := []int{1, 1, 1, topology.MeshShape()[3]}
		replicas, err := tpu.AssignmentOptions{ComputationShape: shape}.MaxReplicas(topology)
		require.NoError(t, err, d.Name)
		assert.Equal(t, topology.NumDevices()/shape[3], replicas, d.Name)
		a, err := tpu.BuildDeviceAssignment(topology, tpu.AssignmentOptions{ComputationShape: shape, Replicas: replicas})
		require.NoError(t, err, d.Name)
		require.NoError(t, a.Validate(), d.Name)
		assert.Empty(t, topology.MissingDevices(), d.Name)
	}
}
