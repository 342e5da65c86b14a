package strategy

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// processes says which process has which partition. The processes are the topology's tasks that
// have devices of the assignment, renumbered without gaps. It is a value.
type processes struct {
	process int // this one
	count   int
	of      []int  // partition to process
	local   []bool // partitions of this process
	// replicas are those with a logical device in this process, ascending.
	replicas []int
}

func processesOf(sys *system.System, assignment tpu.DeviceAssignment) (processes, error) {
	var h processes
	var tasks []int // of each process
	for r := range assignment.NumReplicas() {
		for p := range assignment.NumCoresPerReplica() {
			task, err := assignment.Task(r, p)
			if err != nil {
				return h, &OptionError{Option: "Assignment", Reason: "does not fit the system", Err: err}
			}
			h.of, tasks = append(h.of, task), append(tasks, task)
		}
	}
	slices.Sort(tasks)
	tasks = slices.Compact(tasks)
	h.count = len(tasks)
	h.process, _ = slices.BinarySearch(tasks, sys.Process())
	if !slices.Contains(tasks, sys.Process()) {
		return h, &OptionError{Option: "Assignment", Reason: fmt.Sprintf(
			"has no device of this process, which is process %d of %d; every process of the system takes part", sys.Process(), sys.NumProcesses())}
	}
	h.local = make([]bool, len(h.of))
	for d, task := range h.of {
		h.of[d], _ = slices.BinarySearch(tasks, task)
		if h.local[d] = h.of[d] == h.process; h.local[d] {
			h.replicas = append(h.replicas, d/assignment.NumCoresPerReplica())
		}
	}
	h.replicas = slices.Compact(h.replicas)
	return h, nil
}

// several is false ahead of time, too: then nothing is known of processes.
func (h *processes) several() bool { return h.count > 1 }

// NumProcesses returns how many processes run the strategy together. It is 0 ahead of time.
func (s *TPUStrategy) NumProcesses() int { return s.processes.count }

// Process returns the number of this process, from 0.
func (s *TPUStrategy) Process() int { return s.processes.process }

// LocalReplicas returns the replicas that this process feeds, ascending: those with a logical
// device in this process. With one process they are all replicas. A replica whose logical devices
// are spread over several processes is fed by each of these processes.
func (s *TPUStrategy) LocalReplicas() []int { return slices.Clone(s.processes.replicas) }

// ProcessReplicas returns the replicas of each process, as [TPUStrategy.LocalReplicas] returns
// those of this process: TensorFlow's host to replica map.
func (s *TPUStrategy) ProcessReplicas() [][]int {
	replicas := make([][]int, s.processes.count)
	for d, process := range s.processes.of {
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
	var ids []int
	for d, device := range s.devices {
		if s.processes.local[d] {
			ids = append(ids, device.ID())
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

// part is a part of a replica's tensor and where to read it.
type part struct{ partition, logical int }

// sources returns from which partitions of this process a replica's tensor can be read: one for a
// tensor that is whole on each logical device, otherwise one for each part. A mirrored tensor's
// parts can come from any replica.
func (s *TPUStrategy) sources(l *layout, v *distributed, replica int) ([]part, error) {
	find := func(logical int) (int, bool) {
		d := replica*s.logicalDevices + logical
		if s.processes.local[d] && v.on(d) {
			return d, true
		}
		if v.perReplica {
			return 0, false
		}
		for _, r := range s.processes.replicas {
			if d := r*s.logicalDevices + logical; s.processes.local[d] && v.on(d) {
				return d, true
			}
		}
		return 0, false
	}
	var parts []part
	if l.over.Is() {
		return s.partSources(l)
	}
	found := make([]bool, s.logicalDevices) // by the first device that holds the part
	for p := range s.logicalDevices {
		if first := l.firstOf(p); !found[first] {
			if d, ok := find(p); ok {
				parts, found[first] = append(parts, part{d, p}), true
			}
		}
	}
	for p := range s.logicalDevices {
		if !found[l.firstOf(p)] {
			if l.whole {
				p = s.logicalDevices - 1
			}
			at := replica*s.logicalDevices + p
			for d := range v.only {
				if v.only[d] && (l.whole || l.firstOf(d%s.logicalDevices) == l.firstOf(p)) {
					at = d
					break
				}
			}
			return nil, &RemoteError{Replica: at / s.logicalDevices, LogicalDevice: at % s.logicalDevices, Process: s.processes.of[at],
				Here: s.processes.process, Local: s.LocalReplicas(), some: v.only != nil}
		}
	}
	return parts, nil
}

// everywhere reports whether every process can read a tensor of such a placement from its own
// devices. It is the same on all.
func (s *TPUStrategy) everywhere(perReplica bool, a logical.Annotation) bool {
	if !s.processes.several() {
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
	columns := make([]map[int]bool, s.processes.count)
	for d, process := range s.processes.of {
		if columns[process] == nil {
			columns[process] = map[int]bool{}
		}
		part := l.firstOf(d % s.logicalDevices)
		columns[process][part], parts[part] = true, true
	}
	return !slices.ContainsFunc(columns, func(c map[int]bool) bool { return len(c) < len(parts) })
}

// rows returns the partitions of an executable's launch rows.
func (s *TPUStrategy) rows(x system.Executable) ([]int, error) {
	partitions := make(map[int]int, len(s.devices))
	for d, device := range s.devices {
		partitions[device.ID()] = d
	}
	var rows []int
	for _, device := range x.AddressableDevices() {
		d, ok := partitions[device.ID()]
		if !ok || !s.processes.local[d] {
			return nil, fault.New(errkind.InternalError, "program", "use a device assignment of the system's devices", "it runs on device %d, which is none of this process's %v", device.ID(), s.LocalDevices())
		}
		rows = append(rows, d)
	}
	return rows, nil
}
