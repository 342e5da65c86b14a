package strategy

import (
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/logical"
)

// NumProcesses returns the number of processes that run the strategy, or 0 ahead of time.
func (s *TPUStrategy) NumProcesses() int { return s.runtime.Count }

// Process returns the number of this process, from 0.
func (s *TPUStrategy) Process() int { return s.runtime.Process }

// LocalReplicas returns the replicas that have a logical device in this process, in ascending
// order. This process feeds these replicas. A replica may be fed by several processes.
func (s *TPUStrategy) LocalReplicas() []int { return slices.Clone(s.runtime.Groups) }

// ProcessReplicas returns, for each process, the replicas that have a logical device in that
// process.
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

// LocalDevices returns the ids of this process's devices in the order of their partitions. It
// corresponds to TensorFlow's worker devices.
func (s *TPUStrategy) LocalDevices() []int {
	all, ids := slices.Concat(s.assignment.DeviceIDs()...), []int(nil)
	for d, here := range s.runtime.Local {
		if here {
			ids = append(ids, all[d])
		}
	}
	return ids
}

// isReadableEverywhere reports whether each process has the complete tensor on its own devices if
// the tensor has this layout.
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
