package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// deviceName is TensorFlow's name of a logical device of a replica.
func (s *TPUStrategy) deviceName(replica, column int) string {
	id := s.assignment.DeviceIDs()[replica][column]
	task, ordinal := 0, id
	for t, ids := range s.machine.Topology().DeviceIDs() {
		if i := slices.Index(ids, id); i >= 0 {
			task, ordinal = t, i
		}
	}
	return fmt.Sprintf("/job:%s/replica:0/task:%d/device:%s:%d", s.job(), task, strings.ToUpper(s.machine.Platform()), ordinal)
}

// hostName is the name of a replica's host.
func (s *TPUStrategy) hostName(replica int) string {
	task, _ := s.machine.Topology().TaskOfDevice(s.assignment.DeviceIDs()[replica][0])
	return fmt.Sprintf("/job:%s/replica:0/task:%d/device:CPU:0", s.job(), task)
}

func (s *TPUStrategy) job() string {
	if s.machine.Platform() == "cpu" {
		return "localhost"
	}
	return "worker"
}

// Devices returns the names of the devices of the variable's components, in replica order. A
// component is named by one logical device of its replica, as in TensorFlow. The replica's other
// logical devices hold a part or a copy of the variable, too: [Variable.Shards] lists all of them.
func (v *Variable) Devices() []string {
	names := make([]string, v.strategy.replicas)
	for r := range names {
		names[r] = v.strategy.deviceName(r, v.column)
	}
	return names
}

// partitionsIn says, for each partition of this process, which partition of another strategy is on
// its device. It is false if one has none.
func (s *TPUStrategy) partitionsIn(other *TPUStrategy) ([]int, bool) {
	on := make(map[*pjrt.Device]int, len(other.machine.All))
	for e, device := range other.machine.All {
		on[device] = e
	}
	all := make([]int, len(s.machine.All))
	for d, device := range s.machine.All {
		e, ok := on[device]
		if !ok {
			return nil, false
		}
		all[d] = e
	}
	return all, len(all) > 0 // none ahead of time
}
