package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// names are TensorFlow's names of the logical devices of a replica, and of its host.
func (s *TPUStrategy) names(replica int) (devices []string, host string) {
	job, platform := "worker", strings.ToUpper(s.machine.Platform())
	if platform == "CPU" {
		job = "localhost"
	}
	name := func(task int, platform string, ordinal int) string {
		return fmt.Sprintf("/job:%s/replica:0/task:%d/device:%s:%d", job, task, platform, ordinal)
	}
	topology, column := s.machine.Topology(), s.assignment.DeviceIDs()[replica]
	for _, id := range column {
		task, ordinal := 0, id
		for t, ids := range topology.DeviceIDs() {
			if i := slices.Index(ids, id); i >= 0 {
				task, ordinal = t, i
			}
		}
		devices = append(devices, name(task, platform, ordinal))
	}
	task, _ := topology.TaskOfDevice(column[0])
	return devices, name(task, "CPU", 0)
}

// Devices returns the names of the devices of the variable's components, in replica order. A
// component is named by one logical device of its replica, as in TensorFlow. The replica's other
// logical devices hold a part or a copy of the variable, too: [Variable.Shards] lists all of them.
func (v *Variable) Devices() []string {
	names := make([]string, v.strategy.replicas)
	for r := range names {
		of, _ := v.strategy.names(r)
		names[r] = of[v.column]
	}
	return names
}

// partitionsIn says, for each partition of a machine, which partition of another one is on its
// device. It is false if one has none.
func partitionsIn(m, other *mesh.Machine) ([]int, bool) {
	on := make(map[*pjrt.Device]int, len(other.All))
	for e, device := range other.All {
		on[device] = e
	}
	all := make([]int, len(m.All))
	for d, device := range m.All {
		e, ok := on[device]
		if !ok {
			return nil, false
		}
		all[d] = e
	}
	return all, len(all) > 0 // none ahead of time
}
