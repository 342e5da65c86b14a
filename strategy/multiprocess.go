package strategy

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/logical"
)

// NumProcesses returns how many processes run the strategy together. It is 0 ahead of time.
func (s *TPUStrategy) NumProcesses() int { return s.machine.Count }

// Process returns the number of this process, from 0.
func (s *TPUStrategy) Process() int { return s.machine.Process }

// LocalReplicas returns the replicas that this process feeds, ascending: those with a logical
// device in this process. With one process they are all replicas. A replica whose logical devices
// are spread over several processes is fed by each of these processes.
func (s *TPUStrategy) LocalReplicas() []int { return slices.Clone(s.machine.Groups) }

// ProcessReplicas returns the replicas of each process, as [TPUStrategy.LocalReplicas] returns
// those of this process: TensorFlow's host to replica map.
func (s *TPUStrategy) ProcessReplicas() [][]int {
	replicas := make([][]int, s.machine.Count)
	for d, process := range s.machine.Of {
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
	for d, here := range s.machine.Local {
		if here {
			ids = append(ids, all[d])
		}
	}
	return ids
}

// everywhere reports whether every process can read a tensor of such a placement from its own
// devices. It is the same on all.
func (s *TPUStrategy) everywhere(perReplica bool, a logical.Annotation) bool {
	if !s.machine.Several() || !perReplica && !a.Divides(s.axes) {
		return true
	}
	if perReplica {
		return false
	}
	// The least tensor that can be split so has a part of one element.
	l, err := s.layout(dtypes.Uint8, a.PartsOn(s.axes), a, false)
	return err == nil && s.machine.Everywhere(l)
}

// InputOptions returns the options with which input.Distribute gives this process the data of its
// replicas, with a vote of the processes on the end of the data. Processes that share a replica are
// one to package input, and read the same. If the processes do not have equally many replicas each,
// in order, it returns an [*OptionError], because package input deals data in that way.
//
// The vote is an exchange between the processes, launched where the input is read. Input that a
// goroutine reads ahead of the steps must not vote: use data that ends at the same step on every
// process, such as one dataset that is dealt to them, or a repeated dataset.
func (s *TPUStrategy) InputOptions() (input.Options, error) {
	o := input.Options{Replicas: s.replicas, Processes: s.machine.Count, Process: s.machine.Process, ProcessPipelines: true, Logger: s.opts.Logger}
	if !s.machine.Several() {
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
		if len(replicas) != s.replicas/s.machine.Count || replicas[0] != next {
			return o, &OptionError{Option: "Assignment", Reason: fmt.Sprintf(
				"process %d has replicas %v of %d; input needs them in order, %d for each of %d processes",
				i, replicas, s.replicas, s.replicas/s.machine.Count, s.machine.Count)}
		}
		next += len(replicas)
	}
	return o, nil
}

// sharedReplica returns the one replica of this process, if there are more processes than replicas
// and equally many in a row share each replica.
func (s *TPUStrategy) sharedReplica() (replica int, ok bool) {
	count := s.machine.Count
	if count <= s.replicas || count%s.replicas != 0 {
		return 0, false
	}
	for i, replicas := range s.ProcessReplicas() {
		if len(replicas) != 1 || replicas[0] != i/(count/s.replicas) {
			return 0, false
		}
	}
	return s.machine.Process / (count / s.replicas), true
}
