package strategy

import (
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/logical"
)

// NumProcesses returns the number of processes, or 0 ahead of time.
func (s *TPUStrategy) NumProcesses() int { return s.runtime.Count }

// Process returns the number of this process, from 0.
func (s *TPUStrategy) Process() int { return s.runtime.Process }

// LocalReplicas returns the replicas with a logical device in this process, ascending. This process
// feeds them; a replica may be fed by several processes.
func (s *TPUStrategy) LocalReplicas() []int { return slices.Clone(s.runtime.Groups) }

// ProcessReplicas returns the local replicas of each process.
func (s *TPUStrategy) ProcessReplicas() [][]int {
	replicas := make([][]int, s.runtime.Count)
	for d, process := range s.runtime.Of {
		replicas[process] = append(replicas[process], d/s.logicalDevices)
	}
	for i := range replicas {
		replicas[i] = slices.Compact(replicas[i])
	}
	return replicas
}

// LocalDevices returns the ids of this process's devices in the order of their partitions:
// TensorFlow's worker devices.
func (s *TPUStrategy) LocalDevices() []int {
	all, ids := slices.Concat(s.assignment.DeviceIDs()...), []int(nil)
	for d, here := range s.runtime.Local {
		if here {
			ids = append(ids, all[d])
		}
	}
	return ids
}

// isReadableEverywhere reports whether every process can read a tensor with this layout from its
// own devices.
func (s *TPUStrategy) isReadableEverywhere(perReplica bool, a logical.Annotation) bool {
	if !s.runtime.IsMultiProcess() || !perReplica && !a.IsSharded(s.axes) {
		return true
	}
	if perReplica {
		return false
	}
	// The smallest tensor with this split has shards of one element.
	l, err := s.layout(dtypes.Uint8, a.PartsOn(s.axes), a, false)
	return err == nil && s.runtime.IsReadableEverywhere(l)
}
