package system

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// topologyOf builds the topology of TPU devices from their coordinates: "coords" are the chip's x,
// y, z and "core_on_chip" the core.
//
// Several slices have the same coordinates and differ in "slice_index". They stand side by side
// along x, the axis that a block of logical devices takes last: a replica stays within a slice as
// long as it fits into one.
func topologyOf(name string, devices []*pjrt.DeviceDescription) (tpu.Topology, error) {
	type placed struct {
		process, id, slice int
		at                 tpu.Coordinates
	}
	var all []placed
	mesh := tpu.Coordinates{1, 1, 1, 1}
	count := 1
	for _, device := range devices {
		attributes := device.Attributes()
		coords, ok := attributes["coords"].([]int64)
		if !ok || len(coords) != 3 {
			return tpu.Topology{}, &errkind.Fault{Op: fmt.Sprintf("device %d (%s)", device.ID(), device.Kind()), Reason: "it has no coords attribute",
				Hint: "open CPU devices with Options.CPUDevices", Class: errkind.ValueError}
		}
		core, _ := attributes["core_on_chip"].(int64)
		slice, _ := attributes["slice_index"].(int64)
		at := tpu.Coordinates{int(coords[0]), int(coords[1]), int(coords[2]), int(core)}
		for axis := range at {
			mesh[axis] = max(mesh[axis], at[axis]+1)
		}
		count = max(count, int(slice)+1)
		all = append(all, placed{device.ProcessIndex(), device.ID(), int(slice), at})
	}
	for i := range all {
		all[i].at[0] += all[i].slice * mesh[0]
	}
	mesh[0] *= count
	slices.SortFunc(all, func(a, b placed) int {
		if a.process != b.process {
			return a.process - b.process
		}
		return a.id - b.id
	})
	var coords [][]tpu.Coordinates
	var ids [][]int
	for i, p := range all {
		if i == 0 || p.process != all[i-1].process {
			coords, ids = append(coords, nil), append(ids, nil)
		}
		last := len(coords) - 1
		coords[last], ids[last] = append(coords[last], p.at), append(ids[last], p.id)
	}
	return tpu.NewTopology(tpu.TopologyOptions{MeshShape: mesh[:], DeviceCoordinates: coords, DeviceIDs: ids, Name: name, Slices: count})
}
