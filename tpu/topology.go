package tpu

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// MeshRank is the number of axes of a TPU mesh: x, y, z and core.
const MeshRank = 4

// maxMeshSize is the maximum number of cores of a mesh. It limits the memory that malformed input
// can allocate. Real slices have fewer than 2^15 cores.
const maxMeshSize = 1 << 20

// Coordinates is the position (x, y, z, core) of a core in a TPU mesh. The first three identify the
// chip, and the last one identifies the core on the chip.
type Coordinates [MeshRank]int

// String returns the coordinates in the form (0,1,0,1).
func (c Coordinates) String() string { return fmt.Sprintf("(%d,%d,%d,%d)", c[0], c[1], c[2], c[3]) }

// TopologyOptions specifies a [Topology].
type TopologyOptions struct {
	// MeshShape is the size of the mesh in x, y, z and core. Each size must be at least 1.
	MeshShape []int
	// DeviceCoordinates[t][d] are the coordinates of device d of task t. All tasks must have the
	// same number of devices. Coordinates of the mesh that are not listed are missing devices.
	DeviceCoordinates [][]Coordinates
	// DeviceIDs[t][d] is the runtime's id of device d of task t. All ids must be different. If nil,
	// the id is t*NumTPUsPerTask + d.
	DeviceIDs [][]int
	// Name is an optional name for messages, such as "v5e:4x4".
	Name string
	// Slices is the number of equal slices, which are adjacent along x and connected by the
	// data-center network. It must divide the size of the mesh in x. 0 means 1.
	Slices int
}

// Topology describes the mesh of a TPU slice, and the coordinates and ids of the devices of each
// task. A task is a process of the job. Topology corresponds to TensorFlow's
// tf.tpu.experimental.Topology, but also contains the runtime's device ids, which the compiler needs.
//
// A Topology is an immutable value, is equal in all processes, and may be shared between
// goroutines. The zero Topology has no devices.
type Topology struct {
	name             string
	mesh             Coordinates
	tasks            int
	perTask          int
	coords           []Coordinates // by task and device
	ids              []int         // by task and device
	deviceByPosition []int32       // row-major mesh index to index into coords, or -1
	byID             map[int]int32 // device id to index into coords
	slices           int           // at least 1, except in the zero value
}

// ErrTopology is matched by errors for invalid topologies. The message contains the field of
// [TopologyOptions] or [LogicalOptions], or "proto" for a malformed protocol buffer.
var ErrTopology = errkind.New(errkind.ValueError, "tpu: topology")

// topologyError returns an error for an invalid field of the options. The hint may be empty.
func topologyError(field, hint, format string, args ...any) error {
	return &errkind.Fault{Op: "tpu: topology: " + field, Match: ErrTopology, Reason: fmt.Sprintf(format, args...),
		Hint: hint}
}

// lookupError returns an error for a device or core that does not exist.
func lookupError(reason, hint string) error {
	return &errkind.Fault{Op: "tpu", Reason: reason, Hint: hint, Class: errkind.ValueError}
}

// NewTopology validates and copies options. The error matches [ErrTopology]. The mesh must have
// four positive sizes, all tasks must have the same number of devices, coordinates must be unique
// and within the mesh, and ids must be unique and not negative.
func NewTopology(options TopologyOptions) (Topology, error) {
	mesh, size, err := parseMeshShape(options.MeshShape)
	if err != nil {
		return Topology{}, err
	}
	t := Topology{name: options.Name, mesh: mesh, tasks: len(options.DeviceCoordinates), slices: max(options.Slices, 1)}
	if options.Slices < 0 || mesh[0]%t.slices != 0 {
		return Topology{}, topologyError("Slices", "", "a mesh of size %d along x cannot be divided into %d slices", mesh[0],
			options.Slices)
	}
	if t.tasks > 0 {
		t.perTask = len(options.DeviceCoordinates[0])
	}
	for task, devices := range options.DeviceCoordinates {
		if len(devices) != t.perTask {
			return Topology{}, topologyError("DeviceCoordinates", "all tasks need the same number of devices",
				"task %d has %d devices and task 0 has %d", task, len(devices), t.perTask)
		}
		t.coords = append(t.coords, devices...)
	}
	if err := t.indexDevices(size); err != nil {
		return Topology{}, err
	}
	if err := t.indexIDs(options.DeviceIDs); err != nil {
		return Topology{}, err
	}
	return t, nil
}

func parseMeshShape(shape []int) (mesh Coordinates, size int, err error) {
	if len(shape) != MeshRank {
		return mesh, 0, topologyError("MeshShape", "pass x, y, z and core", "%v has %d entries", shape, len(shape))
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

// indexDevices validates the coordinates of the devices, and sets the map from positions in the
// mesh to devices. size is the number of cores of the mesh.
func (t *Topology) indexDevices(size int) error {
	t.deviceByPosition = slices.Repeat([]int32{-1}, size)
	for i, c := range t.coords {
		if !t.contains(c) {
			return topologyError("DeviceCoordinates", "", "task %d device %d at %v is outside the mesh %v",
				i/t.perTask, i%t.perTask, c, t.mesh)
		}
		slot := &t.deviceByPosition[t.meshIndex(c)]
		if *slot >= 0 {
			return topologyError("DeviceCoordinates", "", "task %d device %d and task %d device %d are both at %v",
				int(*slot)/t.perTask, int(*slot)%t.perTask, i/t.perTask, i%t.perTask, c)
		}
		*slot = int32(i)
	}
	return nil
}

// indexIDs validates the device ids and stores them in t. If ids is nil, device i has id i.
func (t *Topology) indexIDs(ids [][]int) error {
	t.ids = make([]int, len(t.coords))
	t.byID = make(map[int]int32, len(t.coords))
	if ids != nil && len(ids) != t.tasks {
		return topologyError("DeviceIDs", "", "ids for %d tasks, but there are %d tasks", len(ids), t.tasks)
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
			return topologyError("DeviceIDs", "", "id %d is used twice", id)
		}
		t.ids[i], t.byID[id] = id, int32(i)
	}
	return nil
}

func (t Topology) contains(c Coordinates) bool {
	for i, at := range c {
		if at < 0 || at >= t.mesh[i] {
			return false
		}
	}
	return true
}

// meshIndex returns the row-major index of c in the mesh.
func (t Topology) meshIndex(c Coordinates) int {
	return ((c[0]*t.mesh[1]+c[1])*t.mesh[2]+c[2])*t.mesh[3] + c[3]
}

// deviceIndex returns the index of the device at c.
func (t Topology) deviceIndex(c Coordinates) (int, error) {
	if !t.contains(c) {
		return 0, lookupError(fmt.Sprintf("coordinates %v are outside the mesh %v", c, t.mesh), "")
	}
	i := t.deviceByPosition[t.meshIndex(c)]
	if i < 0 {
		return 0, lookupError(fmt.Sprintf("the device at coordinates %v is missing from the slice", c), "see MissingDevices")
	}
	return int(i), nil
}

// Equal reports whether both topologies have the same mesh, devices and ids. It ignores the names
// and the number of slices.
func (t Topology) Equal(other Topology) bool {
	return t.mesh == other.mesh && t.tasks == other.tasks && t.perTask == other.perTask &&
		slices.Equal(t.coords, other.coords) && slices.Equal(t.ids, other.ids)
}

// String returns a summary such as Topology(v2-8, mesh 2x2x1x2, 1 tasks of 8 devices).
func (t Topology) String() string {
	name := t.name
	if name != "" {
		name += ", "
	}
	return fmt.Sprintf("Topology(%smesh %dx%dx%dx%d, %d tasks of %d devices)",
		name, t.mesh[0], t.mesh[1], t.mesh[2], t.mesh[3], t.tasks, t.perTask)
}
