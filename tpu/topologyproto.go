package tpu

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// Field numbers of tensorflow.tpu.TopologyProto.
const (
	fieldMeshShape   = 1
	fieldNumTasks    = 2
	fieldTPUsPerTask = 3
	fieldCoordinates = 4
)

// MarshalProto returns the topology as a serialized tensorflow.tpu.TopologyProto, as TensorFlow's
// Topology.serialized does. The message has no place for device ids and names.
func (t Topology) MarshalProto() []byte {
	if len(t.flat) == 0 {
		return nil
	}
	var mesh, coords []byte
	for _, n := range t.mesh {
		mesh = protowire.AppendVarint(mesh, uint64(n))
	}
	for _, c := range t.coords {
		for _, at := range c {
			coords = protowire.AppendVarint(coords, uint64(at))
		}
	}
	b := appendBytes(nil, fieldMeshShape, mesh)
	b = appendCount(b, fieldNumTasks, t.tasks)
	b = appendCount(b, fieldTPUsPerTask, t.perTask)
	return appendBytes(b, fieldCoordinates, coords)
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

func appendCount(b []byte, field protowire.Number, n int) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(n))
}

// ParseTopologyProto reads a serialized tensorflow.tpu.TopologyProto, as [Topology.MarshalProto]
// writes it and as TensorFlow's tf.tpu.experimental.initialize_tpu_system returns it. Device d of
// task t gets the id t*NumTPUsPerTask + d. Fields it does not know are skipped. A damaged or
// contradictory message gives an error that matches [ErrTopology].
func ParseTopologyProto(wire []byte) (Topology, error) {
	var mesh, numbers []int
	var tasks, perTask int
	for rest := wire; len(rest) > 0; {
		field, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return Topology{}, topologyError("proto", "", "%v at byte %d", protowire.ParseError(n), len(wire)-len(rest))
		}
		rest = rest[n:]
		var err error
		switch field {
		case fieldMeshShape:
			n, err = protoint.Ints(rest, kind, &mesh)
		case fieldNumTasks:
			n, err = protoint.Int(rest, kind, &tasks)
		case fieldTPUsPerTask:
			n, err = protoint.Int(rest, kind, &perTask)
		case fieldCoordinates:
			n, err = protoint.Ints(rest, kind, &numbers)
		default:
			if n = protowire.ConsumeFieldValue(field, kind, rest); n < 0 {
				err = protowire.ParseError(n)
			}
		}
		if err != nil {
			return Topology{}, topologyError("proto", "", "field %d: %v", field, err)
		}
		rest = rest[n:]
	}
	return fromNumbers(mesh, tasks, perTask, numbers)
}

func fromNumbers(mesh []int, tasks, perTask int, numbers []int) (Topology, error) {
	if tasks < 0 || perTask < 0 {
		return Topology{}, topologyError("proto", "", "%d tasks of %d devices: a number is negative", tasks, perTask)
	}
	devices := len(numbers) / MeshRank
	if len(numbers)%MeshRank != 0 || perTask > 0 && (tasks != devices/perTask || devices%perTask != 0) || perTask == 0 && devices != 0 {
		return Topology{}, topologyError("DeviceCoordinates", "", "%d numbers, but %d tasks of %d devices have four numbers each",
			len(numbers), tasks, perTask)
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
