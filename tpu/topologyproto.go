package tpu

import "github.com/tpustrategy/tpustrategy/internal/protoint"

// Field numbers of tensorflow.tpu.TopologyProto.
const (
	fieldMeshShape   = 1
	fieldNumTasks    = 2
	fieldTPUsPerTask = 3
	fieldCoordinates = 4
)

// MarshalProto returns the topology as a serialized tensorflow.tpu.TopologyProto, like TensorFlow's
// Topology.serialized. The message does not contain the device ids, the name or the number of slices.
func (t Topology) MarshalProto() []byte {
	if len(t.deviceByPosition) == 0 {
		return nil
	}
	b := protoint.AppendInts(nil, fieldMeshShape, t.mesh[:])
	if t.tasks > 0 {
		b = protoint.AppendInt(b, fieldNumTasks, int64(t.tasks))
	}
	if t.perTask > 0 {
		b = protoint.AppendInt(b, fieldTPUsPerTask, int64(t.perTask))
	}
	var coords []int
	for _, c := range t.coords {
		coords = append(coords, c[:]...)
	}
	return protoint.AppendInts(b, fieldCoordinates, coords)
}

// ParseTopologyProto parses a serialized tensorflow.tpu.TopologyProto, for example the result of
// TensorFlow's tf.tpu.experimental.initialize_tpu_system. Device d of task t has the id
// t*NumTPUsPerTask + d. Unknown fields are ignored. The error for a malformed or inconsistent
// message matches [ErrTopology].
func ParseTopologyProto(wire []byte) (Topology, error) {
	var mesh, numbers []int
	var tasks, perTask int
	for f, err := range protoint.Fields(wire) {
		if err != nil {
			return Topology{}, topologyError("proto", "", "%v", err)
		}
		switch f.Number {
		case fieldMeshShape:
			mesh, err = f.AppendInts(mesh)
		case fieldNumTasks:
			tasks, err = f.Int()
		case fieldTPUsPerTask:
			perTask, err = f.Int()
		case fieldCoordinates:
			numbers, err = f.AppendInts(numbers)
		}
		if err != nil {
			return Topology{}, topologyError("proto", "", "field %d: %v", f.Number, err)
		}
	}
	return newProtoTopology(mesh, tasks, perTask, numbers)
}

func newProtoTopology(mesh []int, tasks, perTask int, numbers []int) (Topology, error) {
	if tasks < 0 || perTask < 0 {
		return Topology{}, topologyError("proto", "", "%d tasks of %d devices: a number is negative", tasks, perTask)
	}
	devices := len(numbers) / MeshRank
	if len(numbers)%MeshRank != 0 || perTask > 0 && (tasks != devices/perTask || devices%perTask != 0) || perTask == 0 &&
		devices != 0 {
		return Topology{}, topologyError("DeviceCoordinates", "",
			"%d numbers, expected four for each of %d tasks with %d devices", len(numbers), tasks, perTask)
	}
	if perTask == 0 {
		if tasks > maxMeshSize {
			return Topology{}, topologyError("proto", "", "%d tasks without devices", tasks)
		}
		return NewTopology(TopologyOptions{MeshShape: mesh, DeviceCoordinates: make([][]Coordinates, tasks)})
	}
	coords := make([][]Coordinates, tasks)
	for task := range coords {
		coords[task] = make([]Coordinates, perTask)
		for d := range coords[task] {
			coords[task][d] = Coordinates(numbers[(task*perTask+d)*MeshRank:])
		}
	}
	return NewTopology(TopologyOptions{MeshShape: mesh, DeviceCoordinates: coords})
}
