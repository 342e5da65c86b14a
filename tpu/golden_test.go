package tpu

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type goldenTopology struct {
	MeshShape         []int           `json:"mesh_shape"`
	DeviceCoordinates [][]Coordinates `json:"device_coordinates"`
	MeshRank          int             `json:"mesh_rank"`
	NumTasks          int             `json:"num_tasks"`
	NumTPUsPerTask    int             `json:"num_tpus_per_task"`
	MissingDevices    []Coordinates   `json:"missing_devices"`
	SerializedHex     string          `json:"serialized_hex"`
	Inverse           []struct {
		Coordinates   Coordinates
		Task, Ordinal int
		CPU, TPU      string
	}
}

type goldenCase struct {
	Name, Kind string
	Input      json.RawMessage
	Output     *struct {
		NumReplicas       int                        `json:"num_replicas"`
		NumCores          int                        `json:"num_cores_per_replica"`
		CoreAssignment    [][]Coordinates            `json:"core_assignment"`
		Task              [][]int                    `json:"task"`
		TPUOrdinal        [][]int                    `json:"tpu_ordinal"`
		TPUDevice         [][]string                 `json:"tpu_device"`
		HostDevice        [][]string                 `json:"host_device"`
		TPUDeviceNoJob    string                     `json:"tpu_device_no_job_0_0"`
		HostDeviceNoJob   string                     `json:"host_device_no_job_0_0"`
		LookupReplicas    map[string]json.RawMessage `json:"lookup_replicas"`
		DeviceCoordinates [][]Coordinates            `json:"device_coordinates"`
	}
	Error *struct{ Message string }
}

type goldenFile struct {
	Topologies map[string]goldenTopology
	Ring3D     map[string][][3]int `json:"ring_3d"`
	Cases      []goldenCase
}

func readGolden(t testing.TB) goldenFile {
	t.Helper()
	data, err := os.ReadFile("../testdata/goldens/device_assignment.json")
	require.NoError(t, err)
	var file goldenFile
	require.NoError(t, json.Unmarshal(data, &file))
	return file
}

func (g goldenTopology) build(t testing.TB) Topology {
	t.Helper()
	topology, err := NewTopology(TopologyOptions{MeshShape: g.MeshShape, DeviceCoordinates: g.DeviceCoordinates})
	require.NoError(t, err)
	return topology
}

func TestTopologiesMatchTensorFlow(t *testing.T) {
	file := readGolden(t)
	require.Len(t, file.Topologies, 13)
	for name, want := range file.Topologies {
		t.Run(name, func(t *testing.T) {
			got := want.build(t)
			shape := got.MeshShape()
			assert.Equal(t, want.MeshShape, shape[:])
			assert.Equal(t, want.MeshRank, got.MeshRank())
			assert.Equal(t, want.NumTasks, got.NumTasks())
			assert.Equal(t, want.NumTPUsPerTask, got.NumTPUsPerTask())
			assert.Equal(t, want.DeviceCoordinates, got.DeviceCoordinates())
			assert.ElementsMatch(t, want.MissingDevices, got.MissingDevices())
			for i, m := range got.MissingDevices() {
				assert.Equal(t, want.MissingDevices[i], m)
			}
			assert.Equal(t, want.SerializedHex, hex.EncodeToString(got.MarshalProto()))
			wire, err := hex.DecodeString(want.SerializedHex)
			require.NoError(t, err)
			back, err := ParseTopologyProto(wire)
			require.NoError(t, err)
			assert.True(t, got.Equal(back))
			for _, inv := range want.Inverse {
				task, err := got.TaskOrdinalAtCoordinates(inv.Coordinates)
				if inv.Task < 0 {
					assert.Error(t, err)
					continue
				}
				require.NoError(t, err)
				ordinal, err := got.TPUDeviceOrdinalAtCoordinates(inv.Coordinates)
				require.NoError(t, err)
				cpu, err := got.CPUDeviceNameAtCoordinates(inv.Coordinates, "worker")
				require.NoError(t, err)
				tpu, err := got.TPUDeviceNameAtCoordinates(inv.Coordinates, "worker")
				require.NoError(t, err)
				assert.Equal(t, []any{inv.Task, inv.Ordinal, inv.CPU, inv.TPU}, []any{task, ordinal, cpu, tpu})
			}
		})
	}
}

func TestRingsMatchTensorFlow(t *testing.T) {
	file := readGolden(t)
	require.Len(t, file.Ring3D, 15)
	for name, want := range file.Ring3D {
		var sizes [3]int
		_, err := fmt.Sscanf(name, "%dx%dx%d", &sizes[0], &sizes[1], &sizes[2])
		require.NoError(t, err)
		assert.Equal(t, want, ring(sizes), name)
	}
}

func TestAssignmentsMatchTensorFlow(t *testing.T) {
	file := readGolden(t)
	orders := map[string]DeviceOrder{"AUTO": AutoOrder, "RING": RingOrder, "MESH": MeshOrder}
	ran := 0
	for _, c := range file.Cases {
		if c.Kind != "build" {
			continue
		}
		ran++
		t.Run(c.Name, func(t *testing.T) {
			var in struct {
				Topology string
				Shape    json.RawMessage `json:"computation_shape"`
				Stride   []int           `json:"computation_stride"`
				Replicas int             `json:"num_replicas"`
				Order    string          `json:"device_order_mode"`
			}
			require.NoError(t, json.Unmarshal(c.Input, &in))
			topology := file.Topologies[in.Topology].build(t)
			options := AssignmentOptions{ComputationStride: in.Stride, Replicas: in.Replicas, Order: orders[in.Order]}
			if json.Unmarshal(in.Shape, &options.ComputationShape) != nil {
				t.Skip("a shape that is not a list of numbers cannot be written in Go")
			}
			if in.Replicas == 0 {
				// Zero replicas means the default here; without replicas an
				// assignment is made from its cores.
				checkAssignment(t, c, func() (DeviceAssignment, error) { return NewDeviceAssignment(topology, nil) })
				return
			}
			checkAssignment(t, c, func() (DeviceAssignment, error) { return BuildDeviceAssignment(topology, options) })
		})
	}
	require.Equal(t, 63, ran)
}

func checkAssignment(t *testing.T, c goldenCase, build func() (DeviceAssignment, error)) {
	t.Helper()
	a, err := build()
	if c.Output == nil {
		assert.ErrorContains(t, err, "tpu: ", "TensorFlow: %v", c.Error)
		return
	}
	require.NoError(t, err)
	want := c.Output
	assert.Equal(t, want.NumReplicas, a.NumReplicas())
	assert.Equal(t, want.CoreAssignment, a.CoreAssignment())
	if want.NumReplicas == 0 {
		return
	}
	assert.Equal(t, want.NumCores, a.NumCoresPerReplica())
	for r := range want.NumReplicas {
		for p := range want.NumCores {
			task, err1 := a.Task(r, p)
			ordinal, err2 := a.TPUOrdinal(r, p)
			device, err3 := a.TPUDevice(r, p, "worker")
			host, err4 := a.HostDevice(r, p, "worker")
			coords, err5 := a.Coordinates(r, p)
			for _, err := range []error{err1, err2, err3, err4, err5} {
				require.NoError(t, err)
			}
			assert.Equal(t, []any{want.Task[r][p], want.TPUOrdinal[r][p], want.TPUDevice[r][p], want.HostDevice[r][p], want.CoreAssignment[r][p]},
				[]any{task, ordinal, device, host, coords})
		}
	}
	device, err := a.TPUDevice(0, 0, "")
	require.NoError(t, err)
	assert.Equal(t, want.TPUDeviceNoJob, device)
	host, err := a.HostDevice(0, 0, "")
	require.NoError(t, err)
	assert.Equal(t, want.HostDeviceNoJob, host)
	for key, replicas := range want.LookupReplicas {
		var task, core int
		_, err := fmt.Sscanf(key, "%d/%d", &task, &core)
		require.NoError(t, err)
		got, err := a.LookupReplicas(task, core)
		var want []int
		if json.Unmarshal(replicas, &want) != nil {
			assert.Error(t, err, "%s: %s", key, replicas)
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, want, got, key)
	}
}

func TestConstructorsMatchTensorFlow(t *testing.T) {
	file := readGolden(t)
	v28 := file.Topologies["v2-8"].build(t)
	ran := 0
	for _, c := range file.Cases {
		var in struct {
			Topology string
			Replicas int             `json:"num_replicas"`
			Cores    json.RawMessage `json:"core_assignment"`
			Mesh     []int           `json:"mesh_shape"`
			Coords   json.RawMessage `json:"device_coordinates"`
			Wire     string          `json:"serialized_hex"`
			Task     int
			Core     int
		}
		require.NoError(t, json.Unmarshal(c.Input, &in))
		t.Run(c.Name, func(t *testing.T) {
			switch c.Kind {
			case "ctor":
				var cores [][][]int
				if in.Topology != "v2-8" && in.Cores != nil {
					t.Skip("another type than a topology cannot be given in Go")
				}
				build := func() (DeviceAssignment, error) { // the case that starts from the wire form
					topology, err := ParseTopologyProto(v28.MarshalProto())
					require.NoError(t, err)
					return BuildDeviceAssignment(topology, AssignmentOptions{Replicas: in.Replicas})
				}
				if in.Cores != nil {
					require.NoError(t, json.Unmarshal(in.Cores, &cores))
					if len(cores[0][0]) != MeshRank {
						t.Skip("coordinates of another rank cannot be written in Go")
					}
					build = func() (DeviceAssignment, error) {
						var placed [][]Coordinates
						require.NoError(t, json.Unmarshal(in.Cores, &placed))
						return NewDeviceAssignment(v28, placed)
					}
				}
				checkAssignment(t, c, build)
			case "lookup":
				a, err := BuildDeviceAssignment(v28, AssignmentOptions{Replicas: 2})
				require.NoError(t, err)
				_, err = a.LookupReplicas(in.Task, in.Core)
				assert.ErrorContains(t, err, "tpu: no replica has")
			case "topology":
				var coords [][][]int
				require.NoError(t, json.Unmarshal(in.Coords, &coords))
				if len(coords[0][0]) != MeshRank {
					t.Skip("coordinates of another rank cannot be written in Go")
				}
				_, err := NewTopology(TopologyOptions{MeshShape: in.Mesh, DeviceCoordinates: [][]Coordinates{{Coordinates(coords[0][0])}}})
				var bad *TopologyError
				assert.ErrorAs(t, err, &bad)
			case "topology_proto":
				wire, err := hex.DecodeString(in.Wire)
				require.NoError(t, err)
				got, err := ParseTopologyProto(wire)
				if c.Output == nil {
					var bad *TopologyError
					assert.ErrorAs(t, err, &bad)
				} else {
					require.NoError(t, err)
					assert.Equal(t, c.Output.DeviceCoordinates, got.DeviceCoordinates())
					assert.Equal(t, wire, got.MarshalProto())
				}
			default:
				return
			}
			ran++
		})
	}
	kinds := 0
	for _, c := range file.Cases {
		if slices.Contains([]string{"ctor", "lookup", "topology", "topology_proto"}, c.Kind) {
			kinds++
		}
	}
	assert.Equal(t, kinds, ran+3, "three cases cannot be written in Go")
}
