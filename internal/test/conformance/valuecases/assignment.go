package valuecases

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/tpu"
)

type goldenTopology struct {
	MeshShape         []int               `json:"mesh_shape"`
	DeviceCoordinates [][]tpu.Coordinates `json:"device_coordinates"`
	MeshRank          int                 `json:"mesh_rank"`
	NumTasks          int                 `json:"num_tasks"`
	NumTPUsPerTask    int                 `json:"num_tpus_per_task"`
	MissingDevices    []tpu.Coordinates   `json:"missing_devices"`
	SerializedHex     string              `json:"serialized_hex"`
	Inverse           []struct {
		Coordinates   tpu.Coordinates
		Task, Ordinal int
		CPU, TPU      string
	}
}

// assignmentOutput is a recorded device assignment or a parsed topology.
type assignmentOutput struct {
	NumReplicas       int                        `json:"num_replicas"`
	NumCores          int                        `json:"num_cores_per_replica"`
	CoreAssignment    [][]tpu.Coordinates        `json:"core_assignment"`
	Task              [][]int                    `json:"task"`
	TPUOrdinal        [][]int                    `json:"tpu_ordinal"`
	TPUDevice         [][]string                 `json:"tpu_device"`
	HostDevice        [][]string                 `json:"host_device"`
	TPUDeviceNoJob    string                     `json:"tpu_device_no_job_0_0"`
	HostDeviceNoJob   string                     `json:"host_device_no_job_0_0"`
	LookupReplicas    map[string]json.RawMessage `json:"lookup_replicas"`
	MeshShape         []int                      `json:"mesh_shape"`
	NumTasks          int                        `json:"num_tasks"`
	NumTPUsPerTask    int                        `json:"num_tpus_per_task"`
	DeviceCoordinates [][]tpu.Coordinates        `json:"device_coordinates"`
}

type assignmentGolden struct {
	Name, Kind string
	Input      json.RawMessage
	RawOutput  json.RawMessage   `json:"output"`
	Output     *assignmentOutput `json:"-"`
	Error      *struct{ Message string }
	// Found is the output of a lookup, which is a list.
	Found json.RawMessage `json:"-"`
}

type assignmentFile struct {
	Topologies map[string]goldenTopology
	Ring3D     map[string][][3]int `json:"ring_3d"`
	Cases      []assignmentGolden
	known      map[string]goldenTopology // also includes the topologies of other files
}

func (g goldenTopology) build(t testing.TB) tpu.Topology {
	t.Helper()
	topology, err := tpu.NewTopology(tpu.TopologyOptions{MeshShape: g.MeshShape, DeviceCoordinates: g.DeviceCoordinates})
	require.NoError(t, err)
	return topology
}

// Assignments returns the cases of a file of topologies, rings and device assignments. They run on
// package tpu and may refer to topologies of the other files.
func Assignments(data []byte, others ...[]byte) ([]Case, error) {
	var all assignmentFile
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	all.known = maps.Clone(all.Topologies)
	for _, data := range others {
		var other struct{ Topologies map[string]goldenTopology }
		if err := json.Unmarshal(data, &other); err != nil {
			return nil, err
		}
		for name, topology := range other.Topologies {
			if _, ok := all.known[name]; !ok {
				if all.known == nil {
					all.known = map[string]goldenTopology{}
				}
				all.known[name] = topology
			}
		}
	}
	var cases []Case
	for _, name := range slices.Sorted(maps.Keys(all.Topologies)) {
		cases = append(cases, Case{"topology", name, func(c *T) { checkTopology(c.T, all.Topologies[name]) }})
	}
	for _, name := range slices.Sorted(maps.Keys(all.Ring3D)) {
		cases = append(cases, Case{"ring", name, func(c *T) { checkRing(c, name, all.Ring3D[name]) }})
	}
	for _, g := range all.Cases {
		cases = append(cases, Case{g.Kind, g.Name, func(c *T) { assignmentCase(c, all, g) }})
	}
	return cases, nil
}

// Topology returns a topology of a file of device assignments by name.
func Topology(t testing.TB, data []byte, name string) tpu.Topology {
	t.Helper()
	var all assignmentFile
	require.NoError(t, json.Unmarshal(data, &all))
	require.Contains(t, all.Topologies, name)
	return all.Topologies[name].build(t)
}

func checkTopology(t *testing.T, want goldenTopology) {
	got := want.build(t)
	shape := got.MeshShape()
	assert.Equal(t, want.MeshShape, shape[:])
	assert.Equal(t, want.MeshRank, got.MeshRank())
	assert.Equal(t, want.NumTasks, got.NumTasks())
	assert.Equal(t, want.NumTPUsPerTask, got.NumTPUsPerTask())
	assert.Equal(t, want.DeviceCoordinates, got.DeviceCoordinates())
	assert.Len(t, got.MissingDevices(), len(want.MissingDevices))
	for i, m := range got.MissingDevices() {
		assert.Equal(t, want.MissingDevices[i], m)
	}
	assert.Equal(t, want.SerializedHex, hex.EncodeToString(got.MarshalProto()))
	back, err := tpu.ParseTopologyProto(unhex(t, want.SerializedHex))
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
		name, err := got.TPUDeviceNameAtCoordinates(inv.Coordinates, "worker")
		require.NoError(t, err)
		assert.Equal(t, []any{inv.Task, inv.Ordinal, inv.CPU, inv.TPU}, []any{task, ordinal, cpu, name})
	}
}

// checkRing checks the ring order of an assignment with one core per replica and one device per
// chip.
func checkRing(c *T, name string, want [][3]int) {
	var x, y, z int
	if n, err := fmt.Sscanf(name, "%dx%dx%d", &x, &y, &z); n != 3 || err != nil {
		c.Unmapped("ring %q", name)
	}
	topology, err := tpu.LogicalTopology(tpu.LogicalOptions{Devices: x * y * z, MeshShape: []int{x, y, z, 1}})
	require.NoError(c, err)
	a, err := tpu.BuildDeviceAssignment(topology, tpu.AssignmentOptions{Replicas: x * y * z, Order: tpu.RingOrder})
	require.NoError(c, err)
	var got [][3]int
	for _, replica := range a.CoreAssignment() {
		got = append(got, [3]int{replica[0][0], replica[0][1], replica[0][2]})
	}
	assert.Equal(c, want, got)
}

var orders = map[string]tpu.DeviceOrder{"": tpu.AutoOrder, "AUTO": tpu.AutoOrder, "RING": tpu.RingOrder,
	"MESH": tpu.MeshOrder}

// assignmentCase runs one case, depending on its kind.
func assignmentCase(c *T, all assignmentFile, g assignmentGolden) {
	var in struct {
		Topology string
		Shape    json.RawMessage `json:"computation_shape"`
		Stride   json.RawMessage `json:"computation_stride"`
		Replicas *int            `json:"num_replicas"`
		Order    string          `json:"device_order_mode"`
		Cores    json.RawMessage `json:"core_assignment"`
		Mesh     []int           `json:"mesh_shape"`
		Coords   json.RawMessage `json:"device_coordinates"`
		Wire     string          `json:"serialized_hex"`
		Task     int
		Core     int
		Tasks    int `json:"num_tasks"`                // also in the encoded topology
		PerTask  int `json:"num_tpu_devices_per_task"` // also in the encoded topology
		Build    *struct {
			Topology string
			Shape    []int  `json:"computation_shape"`
			Stride   []int  `json:"computation_stride"`
			Replicas int    `json:"num_replicas"`
			Order    string `json:"device_order_mode"`
		}
	}
	Strictly(c, g.Input, &in)
	switch {
	case len(g.RawOutput) > 0 && g.RawOutput[0] == '[':
		g.Found = g.RawOutput
	case g.RawOutput != nil:
		Strictly(c, g.RawOutput, &g.Output)
	}
	order, ok := orders[in.Order]
	if !ok {
		c.Unmapped("device order %q", in.Order)
	}
	replicas := 1 // TensorFlow's default
	if in.Replicas != nil {
		replicas = *in.Replicas
	}
	// A topology is referred to by name. A note on its form may follow.
	name, _, _ := strings.Cut(in.Topology, " (")
	recorded, known := all.known[name]
	topology := func() tpu.Topology {
		switch {
		case !known && g.Error == nil:
			c.Unmapped("topology %q, which no file has", name)
		case !known:
			c.NotApplicable(NotTopology)
		}
		return recorded.build(c)
	}
	switch g.Kind {
	case "build":
		options := tpu.AssignmentOptions{Replicas: replicas, Order: order}
		if in.Shape != nil && json.Unmarshal(in.Shape, &options.ComputationShape) != nil ||
			in.Stride != nil && json.Unmarshal(in.Stride, &options.ComputationStride) != nil {
			c.NotApplicable(NotNumbers)
		}
		if replicas == 0 && g.Error == nil {
			// Zero replicas means the default for BuildDeviceAssignment. In TensorFlow it means no
			// replicas, so the test builds the assignment from an empty list of cores.
			checkAssignment(c.T, g, func() (tpu.DeviceAssignment, error) { return tpu.NewDeviceAssignment(topology(), nil) })
			return
		}
		checkAssignment(c.T, g, func() (tpu.DeviceAssignment, error) {
			return tpu.BuildDeviceAssignment(topology(),
				options)
		})
	case "ctor":
		build := func() (tpu.DeviceAssignment, error) { // starts from the encoded topology
			topology, err := tpu.ParseTopologyProto(topology().MarshalProto())
			require.NoError(c, err)
			options := tpu.AssignmentOptions{Replicas: replicas, Order: order}
			for from, to := range map[*json.RawMessage]*[]int{&in.Shape: &options.ComputationShape,
				&in.Stride: &options.ComputationStride} {
				if *from != nil {
					require.NoError(c, json.Unmarshal(*from, to))
				}
			}
			return tpu.BuildDeviceAssignment(topology, options)
		}
		if in.Cores != nil {
			var cores [][][]int
			if json.Unmarshal(in.Cores, &cores) != nil || len(cores) > 0 && len(cores[0]) > 0 &&
				len(cores[0][0]) != tpu.MeshRank {
				c.NotApplicable(OtherRank)
			}
			if g.Output != nil && strings.Contains(string(in.Cores), "-") {
				c.NotApplicable(Negative)
			}
			build = func() (tpu.DeviceAssignment, error) {
				var placed [][]tpu.Coordinates
				require.NoError(c, json.Unmarshal(in.Cores, &placed))
				return tpu.NewDeviceAssignment(topology(), placed)
			}
		}
		checkAssignment(c.T, g, build)
	case "lookup":
		options := tpu.AssignmentOptions{Replicas: replicas}
		if b := in.Build; b != nil {
			options = tpu.AssignmentOptions{Replicas: b.Replicas, ComputationShape: b.Shape, ComputationStride: b.Stride,
				Order: orders[b.Order]}
		}
		a, err := tpu.BuildDeviceAssignment(topology(), options)
		require.NoError(c, err)
		found, err := a.LookupReplicas(in.Task, in.Core)
		if g.Error != nil {
			assert.ErrorContains(c, err, "tpu: no replica has")
			return
		}
		require.NoError(c, err)
		text, err := json.Marshal(found)
		require.NoError(c, err)
		assert.JSONEq(c, string(g.Found), string(text))
	case "topology":
		var coords [][][]int
		if json.Unmarshal(in.Coords, &coords) != nil || len(coords) == 0 || len(coords[0]) == 0 ||
			len(coords[0][0]) != tpu.MeshRank {
			c.NotApplicable(OtherRank)
		}
		var placed [][]tpu.Coordinates
		require.NoError(c, json.Unmarshal(in.Coords, &placed))
		made, err := tpu.NewTopology(tpu.TopologyOptions{MeshShape: in.Mesh, DeviceCoordinates: placed})
		if g.Error == nil {
			if repeated(placed) {
				c.NotApplicable(Repeated)
			}
			require.NoError(c, err)
			assert.Equal(c, placed, made.DeviceCoordinates())
			return
		}
		assert.ErrorIs(c, err, tpu.ErrTopology)
	case "topology_proto":
		wire := unhex(c, in.Wire)
		got, err := tpu.ParseTopologyProto(wire)
		if g.Output == nil {
			assert.ErrorIs(c, err, tpu.ErrTopology)
			return
		}
		require.NoError(c, err)
		assert.Equal(c, g.Output.DeviceCoordinates, got.DeviceCoordinates())
		shape := got.MeshShape()
		assert.Equal(c, []any{g.Output.MeshShape, g.Output.NumTasks, g.Output.NumTPUsPerTask}, []any{shape[:], got.NumTasks(),
			got.NumTPUsPerTask()})
		assert.Equal(c, wire, got.MarshalProto())
	default:
		c.Unmapped("kind %q", g.Kind)
	}
}

func checkAssignment(t *testing.T, c assignmentGolden, build func() (tpu.DeviceAssignment, error)) {
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
			assert.Equal(t, []any{want.Task[r][p], want.TPUOrdinal[r][p], want.TPUDevice[r][p], want.HostDevice[r][p],
				want.CoreAssignment[r][p]},
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

// repeated reports whether two devices have the same coordinates.
func repeated(placed [][]tpu.Coordinates) bool {
	seen := map[tpu.Coordinates]bool{}
	for _, task := range placed {
		for _, at := range task {
			if seen[at] {
				return true
			}
			seen[at] = true
		}
	}
	return false
}
