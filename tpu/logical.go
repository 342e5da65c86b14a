package tpu

// LogicalOptions specifies the mesh for [LogicalTopology].
type LogicalOptions struct {
	// Devices is the number of devices. If 0, it is the size of MeshShape.
	Devices int
	// MeshShape is the mesh in x, y, z and core. Its size must be Devices. If nil, it is
	// [Devices/2, 1, 1, 2], or [Devices, 1, 1, 1] if Devices is odd.
	MeshShape []int
	// Tasks is the number of processes. Devices are distributed over the processes in order, so
	// Tasks must divide Devices. 0 means 1.
	Tasks int
	// Slices is the number of slices, which are adjacent along x. 0 means 1.
	Slices int
}

// logicalTopologyName is the name of topologies built by LogicalTopology.
const logicalTopologyName = "logical"

// LogicalTopology returns a topology for devices without coordinates, such as CPU devices. Device k
// has id k and the k-th coordinates of the mesh in row-major order (core fastest, then z, y and x).
func LogicalTopology(options LogicalOptions) (Topology, error) {
	devices, shape, tasks := options.Devices, options.MeshShape, options.Tasks
	if shape == nil {
		switch {
		case devices < 1:
			return Topology{}, topologyError("Devices", "set Devices to at least 1, or set MeshShape", "%d devices", devices)
		case devices%2 == 0:
			shape = []int{devices / 2, 1, 1, 2}
		default:
			shape = []int{devices, 1, 1, 1}
		}
	}
	mesh, size, err := parseMeshShape(shape)
	if err != nil {
		return Topology{}, err
	}
	if devices != 0 && devices != size {
		return Topology{}, topologyError("MeshShape", "", "%v has size %d, but there are %d devices", shape, size, devices)
	}
	if tasks == 0 {
		tasks = 1
	}
	if tasks < 0 || size%tasks != 0 {
		return Topology{}, topologyError("Tasks", "", "%d devices cannot be divided equally among %d tasks", size, tasks)
	}
	perTask := size / tasks
	coords := make([][]Coordinates, tasks)
	for k := range size {
		coords[k/perTask] = append(coords[k/perTask], coordinatesAt(k, mesh))
	}
	return NewTopology(TopologyOptions{
		MeshShape: shape, DeviceCoordinates: coords, Name: logicalTopologyName, Slices: options.Slices,
	})
}
