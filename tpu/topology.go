package tpu

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// MeshRank is the number of axes of a TPU mesh: x, y, z and core.
const MeshRank = 4

// maxMeshSize bounds the cores of a mesh, so that a damaged description cannot ask for unbounded
// memory. The largest slices have fewer than 2^15 cores.
const maxMeshSize = 1 << 20

// Coordinates is the place of a core in a TPU mesh, as (x, y, z, core): the first three numbers say
// which chip, the last says which core of the chip.
type Coordinates [MeshRank]int

// String returns a text such as (0,1,0,1).
func (c Coordinates) String() string { return fmt.Sprintf("(%d,%d,%d,%d)", c[0], c[1], c[2], c[3]) }

// TopologyOptions describes a [Topology].
type TopologyOptions struct {
	// MeshShape is the size of the mesh in x, y, z and core; each is at least 1.
	MeshShape []int
	// DeviceCoordinates has the place of device d of task t at DeviceCoordinates[t][d]. Every task
	// has the same number of devices. A place of the mesh that no device takes is a missing device.
	DeviceCoordinates [][]Coordinates
	// DeviceIDs are the ids by which the runtime knows the same devices, all different. If nil,
	// device d of task t has id t*NumTPUsPerTask + d.
	DeviceIDs [][]int
	// Name says what the topology is, for people, such as "v5e:4x4"; it may be empty.
	Name string
	// Slices is the number of equal slices that stand side by side along x, joined by the data-center
	// network; 0 is 1. It divides the mesh's size in x.
	Slices int
}

// Topology is the shape of a TPU slice: its mesh, and where in the mesh each device of each task
// (TensorFlow's word for a process of the job) is. It is TensorFlow's tf.tpu.experimental.Topology,
// and carries the runtime's device ids too, so that an assignment can be turned into the ids that a
// program is compiled for.
//
// A Topology is an immutable value, the same in every process, and may be shared between
// goroutines. The zero Topology has no devices.
type Topology struct {
	name    string
	mesh    Coordinates
	tasks   int
	perTask int
	coords  []Coordinates // by task, then device
	ids     []int         // likewise
	flat    []int32       // mesh place, row-major -> index into coords, or -1
	byID    map[int]int32 // device id -> index into coords
	slices  int           // at least 1, but for the zero value
}

// ErrTopology is matched by the error of a description of a topology that is wrong. It names the field
// of [TopologyOptions] or [LogicalOptions], or "proto" for the wire form.
var ErrTopology = errkind.New(errkind.ValueError, "tpu: topology")

// topologyError is the error of a field. The hint may be empty.
func topologyError(field, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "tpu: topology: " + field, Match: ErrTopology, Reason: fmt.Sprintf(format, args...), Hint: hint}
}

// lookUp is the error of what a topology or an assignment does not have.
func lookUp(reason, hint string) error {
	return &errkind.Fault{Op: "tpu", Reason: reason, Hint: hint, Class: errkind.ValueError}
}

// NewTopology checks and copies a description of a slice. It refuses, with an error that matches [ErrTopology], a
// mesh that is not four positive sizes, tasks of different sizes, and coordinates or ids that are
// repeated, negative or outside the mesh.
func NewTopology(options TopologyOptions) (Topology, error) {
	mesh, size, err := checkMesh(options.MeshShape)
	if err != nil {
		return Topology{}, err
	}
	t := Topology{name: options.Name, mesh: mesh, tasks: len(options.DeviceCoordinates), slices: max(options.Slices, 1)}
	if options.Slices < 0 || mesh[0]%t.slices != 0 {
		return Topology{}, topologyError("Slices", "", "%d slices cannot stand side by side in a mesh of %d along x", options.Slices, mesh[0])
	}
	if t.tasks > 0 {
		t.perTask = len(options.DeviceCoordinates[0])
	}
	for task, devices := range options.DeviceCoordinates {
		if len(devices) != t.perTask {
			return Topology{}, topologyError("DeviceCoordinates", "give all tasks the same number", "task %d has %d devices and task 0 has %d",
				task, len(devices), t.perTask)
		}
		t.coords = append(t.coords, devices...)
	}
	if err := t.index(size); err != nil {
		return Topology{}, err
	}
	if err := t.numberDevices(options.DeviceIDs); err != nil {
		return Topology{}, err
	}
	return t, nil
}

func checkMesh(shape []int) (mesh Coordinates, size int, err error) {
	if len(shape) != MeshRank {
		return mesh, 0, topologyError("MeshShape", "give x, y, z and core", "%v has %d entries", shape, len(shape))
	}
	size = 1
	for i, n := range shape {
		if n < 1 {
			return mesh, 0, topologyError("MeshShape", "", "%v has an entry below 1", shape)
		}
		if n > maxMeshSize/size {
			return mesh, 0, topologyError("MeshShape", "", "%v has more than %d cores", shape, maxMeshSize)
		}
		size *= n
		mesh[i] = n
	}
	return mesh, size, nil
}

// index fills the map from places to devices.
func (t *Topology) index(size int) error {
	t.flat = slices.Repeat([]int32{-1}, size)
	for i, c := range t.coords {
		if !t.inMesh(c) {
			return topologyError("DeviceCoordinates", "", "task %d device %d at %v is outside the mesh %v",
				i/t.perTask, i%t.perTask, c, t.mesh)
		}
		at := &t.flat[t.place(c)]
		if *at >= 0 {
			return topologyError("DeviceCoordinates", "", "task %d device %d and task %d device %d are both at %v",
				int(*at)/t.perTask, int(*at)%t.perTask, i/t.perTask, i%t.perTask, c)
		}
		*at = int32(i)
	}
	return nil
}

func (t *Topology) numberDevices(ids [][]int) error {
	t.ids = make([]int, len(t.coords))
	t.byID = make(map[int]int32, len(t.coords))
	if ids != nil && len(ids) != t.tasks {
		return topologyError("DeviceIDs", "", "ids for %d tasks, there are %d", len(ids), t.tasks)
	}
	for task, row := range ids {
		if len(row) != t.perTask {
			return topologyError("DeviceIDs", "", "task %d has %d ids for %d devices", task, len(row), t.perTask)
		}
	}
	for i := range t.ids {
		id := i
		if ids != nil {
			id = ids[i/t.perTask][i%t.perTask]
		}
		if id < 0 {
			return topologyError("DeviceIDs", "", "id %d is negative", id)
		}
		if _, taken := t.byID[id]; taken {
			return topologyError("DeviceIDs", "", "id %d is given twice", id)
		}
		t.ids[i], t.byID[id] = id, int32(i)
	}
	return nil
}

func (t Topology) inMesh(c Coordinates) bool {
	for i, at := range c {
		if at < 0 || at >= t.mesh[i] {
			return false
		}
	}
	return true
}

// place returns the row-major number of a place in the mesh.
func (t Topology) place(c Coordinates) int {
	return ((c[0]*t.mesh[1]+c[1])*t.mesh[2]+c[2])*t.mesh[3] + c[3]
}

// find returns the index of the device at a place.
func (t Topology) find(c Coordinates) (int, error) {
	if !t.inMesh(c) {
		return 0, lookUp(fmt.Sprintf("coordinates %v are outside the mesh %v", c, t.mesh), "")
	}
	i := t.flat[t.place(c)]
	if i < 0 {
		return 0, lookUp(fmt.Sprintf("no device at coordinates %v: it is missing from the slice", c), "see MissingDevices")
	}
	return int(i), nil
}

// Equal reports whether both topologies have the same mesh, devices and ids. Names and the number of
// slices do not count.
func (t Topology) Equal(other Topology) bool {
	return t.mesh == other.mesh && t.tasks == other.tasks && t.perTask == other.perTask &&
		slices.Equal(t.coords, other.coords) && slices.Equal(t.ids, other.ids)
}

// String returns a line such as Topology(v2-8, mesh 2x2x1x2, 1 tasks of 8 devices).
func (t Topology) String() string {
	name := t.name
	if name != "" {
		name += ", "
	}
	return fmt.Sprintf("Topology(%smesh %dx%dx%dx%d, %d tasks of %d devices)",
		name, t.mesh[0], t.mesh[1], t.mesh[2], t.mesh[3], t.tasks, t.perTask)
}
