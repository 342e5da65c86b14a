package strategy

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
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

// RemoteError reports a read of a tensor, or of a part of it, that another process holds.
type RemoteError struct {
	// Replica and LogicalDevice say whose part was read, Process which process holds the part.
	Replica, LogicalDevice, Process int
	// Here is the number of this process, Local are its replicas.
	Here  int
	Local []int

	some bool // the value is on some devices only
}

// Error names the part, the process that holds it and this process.
func (e *RemoteError) Error() string {
	hint := "read it there, or Reduce or Gather it on the devices first"
	if e.some {
		hint = "read it there, or reduce to all devices where it is made"
	}
	return errkind.Text(fmt.Sprintf("strategy: reading logical device %d of replica %d", e.LogicalDevice, e.Replica),
		fmt.Sprintf("it is in process %d, this is process %d with replicas %v", e.Process, e.Here, e.Local), nil, hint)
}

// Kind returns ValueError.
func (e *RemoteError) Kind() Kind { return ValueError }

// sources returns from which partitions of this process a replica's tensor can be read. A mirrored
// tensor's parts can come from any replica.
func (s *TPUStrategy) sources(l *mesh.Layout, v *distributed, replica int) ([]int, error) {
	from, missing, ok := s.machine.Sources(l, replica, v.on, !v.perReplica)
	if ok {
		return from, nil
	}
	if l.IsWhole() {
		missing = (replica+1)*s.logicalDevices - 1
	}
	for d := range v.only { // the part is on some device
		if v.only[d] && (l.IsWhole() || l.First(d%s.logicalDevices) == l.First(missing%s.logicalDevices)) {
			missing = d
			break
		}
	}
	e := s.remote(missing)
	e.some = v.only != nil
	return nil, e
}

// remote is the error of a read from another process's partition.
func (s *TPUStrategy) remote(partition int) *RemoteError {
	return &RemoteError{Replica: partition / s.logicalDevices, LogicalDevice: partition % s.logicalDevices, Process: s.machine.Of[partition],
		Here: s.machine.Process, Local: s.LocalReplicas()}
}

// everywhere reports whether every process can read a tensor of such a placement from its own
// devices. It is the same on all.
func (s *TPUStrategy) everywhere(perReplica bool, a logical.Annotation) bool {
	if !s.machine.Several() {
		return true
	}
	if perReplica {
		return false
	}
	if !a.Divides(s.axes) {
		return true
	}
	// The least tensor that can be split so has a part of one element.
	l, err := s.layout(dtypes.Uint8, a.PartsOn(s.axes), a, false)
	if err != nil {
		return false
	}
	parts := map[int]bool{}
	columns := make([]map[int]bool, s.machine.Count)
	for d, process := range s.machine.Of {
		if columns[process] == nil {
			columns[process] = map[int]bool{}
		}
		part := l.First(d % s.logicalDevices)
		columns[process][part], parts[part] = true, true
	}
	return !slices.ContainsFunc(columns, func(c map[int]bool) bool { return len(c) < len(parts) })
}
