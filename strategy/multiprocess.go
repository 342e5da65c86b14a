package strategy

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
)

// NumProcesses returns the number of processes that run the strategy. It is 0 ahead of time.
func (s *TPUStrategy) NumProcesses() int { return s.runtime.Count }

// Process returns the number of this process, from 0.
func (s *TPUStrategy) Process() int { return s.runtime.Process }

// LocalReplicas returns the replicas that this process feeds, ascending: the replicas with a
// logical device in this process. With one process they are all replicas. A replica whose logical
// devices belong to several processes is fed by each of these processes.
func (s *TPUStrategy) LocalReplicas() []int { return slices.Clone(s.runtime.Groups) }

// ProcessReplicas returns the replicas of each process, as [TPUStrategy.LocalReplicas] does for
// this process: TensorFlow's host to replica map.
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

// isReadableEverywhere reports whether every process can read a tensor with this layout from its own devices.
// The result is the same on all processes.
func (s *TPUStrategy) isReadableEverywhere(perReplica bool, a logical.Annotation) bool {
	if !s.runtime.Several() || !perReplica && !a.IsSharded(s.axes) {
		return true
	}
	if perReplica {
		return false
	}
	// The smallest tensor with this split has shards of one element.
	l, err := s.layout(dtypes.Uint8, a.PartsOn(s.axes), a, false)
	return err == nil && s.runtime.Everywhere(l)
}

// InputOptions returns options for input.Distribute that select the data of this process's
// replicas. The processes vote on the end of the data. Processes that share a replica count as one
// process and read the same data. InputOptions returns an [*OptionError] if the processes do not
// have the same number of replicas each, in order, because package input distributes data in that
// way.
//
// The vote is an exchange between the processes, launched where the input is read. Input that a
// goroutine prefetches must not vote: use data that ends at the same step on every process, such as
// one dataset that is distributed over the processes, or a repeated dataset.
func (s *TPUStrategy) InputOptions() (input.Options, error) {
	o := input.Options{Replicas: s.replicas, Processes: s.runtime.Count, Process: s.runtime.Process, PerWorkerOnly: true, Logger: s.opts.Logger}
	if !s.runtime.Several() {
		o.Processes, o.Process = 1, 0
		return o, nil
	}
	o.AnyProcess = s.AnyProcess
	if replica, ok := s.sharedReplica(); ok {
		o.Processes, o.Process = s.replicas, replica
		return o, nil
	}
	next := 0
	for i, replicas := range s.ProcessReplicas() {
		if len(replicas) != s.replicas/s.runtime.Count || replicas[0] != next {
			return o, &OptionError{Option: "Assignment", Reason: fmt.Sprintf(
				"process %d has replicas %v of %d; input needs them in order, %d for each of %d processes",
				i, replicas, s.replicas, s.replicas/s.runtime.Count, s.runtime.Count)}
		}
		next += len(replicas)
	}
	return o, nil
}

// sharedReplica returns the one replica of this process, if there are more processes than replicas
// and each replica is shared by the same number of consecutive processes.
func (s *TPUStrategy) sharedReplica() (replica int, ok bool) {
	count := s.runtime.Count
	if count <= s.replicas || count%s.replicas != 0 {
		return 0, false
	}
	for i, replicas := range s.ProcessReplicas() {
		if len(replicas) != 1 || replicas[0] != i/(count/s.replicas) {
			return 0, false
		}
	}
	return s.runtime.Process / (count / s.replicas), true
}
