package system

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// topologyFromDevices builds the topology of TPU devices from their attributes: "coords" are the
// chip's x, y and z, and "core_on_chip" is the core.
//
// Devices of several slices have the same coordinates but different values of "slice_index". The
// topology places the slices next to each other along x. A replica that fits into a slice stays
// within a slice, because its block of cores extends along x last.
func topologyFromDevices(name string, devices []*pjrt.DeviceDescription) (tpu.Topology, error) {
	type deviceInfo struct {
		process, id, slice int
		coordinates        tpu.Coordinates
	}
	var infos []deviceInfo
	mesh := tpu.Coordinates{1, 1, 1, 1}
	count := 1
	for _, device := range devices {
		attributes := device.Attributes()
		coords, ok := attributes["coords"].([]int64)
		if !ok || len(coords) != 3 {
			return tpu.Topology{}, &errkind.Fault{Op: fmt.Sprintf("device %d (%s)", device.ID(), device.Kind()),
				Reason: "it has no coords attribute", Hint: "open CPU devices with Options.CPUDevices", Class: errkind.ValueError}
		}
		core, _ := attributes["core_on_chip"].(int64)
		slice, _ := attributes["slice_index"].(int64)
		coordinates := tpu.Coordinates{int(coords[0]), int(coords[1]), int(coords[2]), int(core)}
		for axis := range coordinates {
			mesh[axis] = max(mesh[axis], coordinates[axis]+1)
		}
		count = max(count, int(slice)+1)
		infos = append(infos, deviceInfo{device.ProcessIndex(), device.ID(), int(slice), coordinates})
	}
	for i := range infos {
		infos[i].coordinates[0] += infos[i].slice * mesh[0]
	}
	mesh[0] *= count
	slices.SortFunc(infos, func(a, b deviceInfo) int {
		if a.process != b.process {
			return a.process - b.process
		}
		return a.id - b.id
	})
	var coords [][]tpu.Coordinates
	var ids [][]int
	for i, p := range infos {
		if i == 0 || p.process != infos[i-1].process {
			coords, ids = append(coords, nil), append(ids, nil)
		}
		last := len(coords) - 1
		coords[last], ids[last] = append(coords[last], p.coordinates), append(ids[last], p.id)
	}
	return tpu.NewTopology(tpu.TopologyOptions{MeshShape: mesh[:], DeviceCoordinates: coords, DeviceIDs: ids, Name: name,
		Slices: count})
}
