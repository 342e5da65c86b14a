package tpu

// LogicalOptions describes a topology that no TPU has.
type LogicalOptions struct {
	// Devices is the number of devices. If 0, it is the size of MeshShape.
	Devices int
	// MeshShape is the mesh in x, y, z and core; its size is Devices. If nil, it is [Devices/2, 1,
	// 1, 2], or [Devices, 1, 1, 1] for an odd number.
	MeshShape []int
	// Tasks is the number of processes, among which the devices are dealt in order; it divides
	// Devices. If 0, it is 1.
	Tasks int
	// Slices is the number of slices that the devices stand for, side by side along x; 0 is 1.
	Slices int
}

// logicalName is the name of a topology that no TPU has.
const logicalName = "logical"

// LogicalTopology returns a mesh in which device k has id k and the k-th place in row-major order
// (core fastest, then z, y, x). It gives devices without coordinates, such as those of a CPU, the
// topology that a strategy needs.
func LogicalTopology(options LogicalOptions) (Topology, error) {
	devices, shape, tasks := options.Devices, options.MeshShape, options.Tasks
	if shape == nil {
		switch {
		case devices < 1:
			return Topology{}, topologyError("Devices", "give at least 1, or a MeshShape", "%d devices", devices)
		case devices%2 == 0:
			shape = []int{devices / 2, 1, 1, 2}
		default:
			shape = []int{devices, 1, 1, 1}
		}
	}
	mesh, size, err := checkMesh(shape)
	if err != nil {
		return Topology{}, err
	}
	if devices != 0 && devices != size {
		return Topology{}, topologyError("MeshShape", "", "%v has %d places for %d devices", shape, size, devices)
	}
	if tasks == 0 {
		tasks = 1
	}
	if tasks < 0 || size%tasks != 0 {
		return Topology{}, topologyError("Tasks", "", "%d tasks cannot share %d devices equally", tasks, size)
	}
	perTask := size / tasks
	coords := make([][]Coordinates, tasks)
	for k := range size {
		coords[k/perTask] = append(coords[k/perTask], rowMajor(k, mesh))
	}
	return NewTopology(TopologyOptions{MeshShape: shape, DeviceCoordinates: coords, Name: logicalName, Slices: options.Slices})
}
