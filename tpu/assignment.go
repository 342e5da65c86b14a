package tpu

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// DeviceAssignment assigns a TPU core to each logical core of each replica. It corresponds to
// TensorFlow's tf.tpu.experimental.DeviceAssignment.
//
// A DeviceAssignment is an immutable value, is equal in all processes, and may be shared between
// goroutines. The zero DeviceAssignment has no replicas.
type DeviceAssignment struct {
	topology      Topology
	replicas      int
	cores         int
	deviceIndices []int32 // device index in the topology, by replica and logical core
}

// NewDeviceAssignment returns the assignment of cores[r][p] to logical core p of replica r. Use it for
// custom placements, and [BuildDeviceAssignment] otherwise. All replicas must have the same number of
// cores, and all coordinates must have a device. A core may be assigned twice, as in TensorFlow, but
// programs cannot be compiled for such an assignment (see [DeviceAssignment.Validate]).
func NewDeviceAssignment(topology Topology, cores [][]Coordinates) (DeviceAssignment, error) {
	a := DeviceAssignment{topology: topology, replicas: len(cores)}
	if len(cores) > 0 {
		a.cores = len(cores[0])
	}
	for r, row := range cores {
		if len(row) != a.cores {
			return DeviceAssignment{}, assignmentError("Cores", "all replicas need the same number of cores",
				"replica %d has %d cores and replica 0 has %d", r, len(row), a.cores)
		}
		for p, c := range row {
			i, err := topology.deviceIndex(c)
			if err != nil {
				return DeviceAssignment{}, &errkind.Fault{Op: "tpu: device assignment",
					Subject: fmt.Sprintf("of replica %d, logical core %d", r, p), Err: err}
			}
			a.deviceIndices = append(a.deviceIndices, int32(i))
		}
	}
	return a, nil
}

// Validate returns an error for the first core that is assigned twice.
func (a DeviceAssignment) Validate() error {
	seen := make(map[int32]int, len(a.deviceIndices))
	for k, i := range a.deviceIndices {
		if earlier, taken := seen[i]; taken {
			return assignmentError("Cores", "",
				"the core at %v is logical core %d of replica %d and logical core %d of replica %d",
				a.topology.coords[i], earlier%a.cores, earlier/a.cores, k%a.cores, k/a.cores)
		}
		seen[i] = k
	}
	return nil
}

// Topology returns the topology of the slice (TensorFlow's DeviceAssignment.topology).
func (a DeviceAssignment) Topology() Topology { return a.topology }

// NumReplicas returns the number of replicas (TensorFlow's DeviceAssignment.num_replicas).
func (a DeviceAssignment) NumReplicas() int { return a.replicas }

// NumCoresPerReplica returns the number of logical cores of each replica (TensorFlow's
// DeviceAssignment.num_cores_per_replica).
func (a DeviceAssignment) NumCoresPerReplica() int { return a.cores }

// CoreAssignment returns a copy of the coordinates, by replica and logical core (TensorFlow's
// DeviceAssignment.core_assignment).
func (a DeviceAssignment) CoreAssignment() [][]Coordinates {
	return mapCores(a, func(i int32) Coordinates { return a.topology.coords[i] })
}

// DeviceIDs returns the runtime's device ids, by replica and logical core. Partition
// r*NumCoresPerReplica + p of a program runs on device DeviceIDs()[r][p].
func (a DeviceAssignment) DeviceIDs() [][]int {
	return mapCores(a, func(i int32) int { return a.topology.ids[i] })
}

func mapCores[T any](a DeviceAssignment, value func(int32) T) [][]T {
	rows := make([][]T, a.replicas)
	for r := range rows {
		rows[r] = make([]T, a.cores)
		for p := range rows[r] {
			rows[r][p] = value(a.deviceIndices[r*a.cores+p])
		}
	}
	return rows
}

// coreProperty returns a property of the device of a logical core. property returns the property of
// the device with a given index in the topology.
func coreProperty[T any](a DeviceAssignment, replica, core int, property func(i int) T) (value T, err error) {
	if replica < 0 || replica >= a.replicas {
		return value, lookupError(fmt.Sprintf("no replica %d", replica), fmt.Sprintf("the assignment has %d", a.replicas))
	}
	if core < 0 || core >= a.cores {
		return value, lookupError(fmt.Sprintf("no logical core %d", core), fmt.Sprintf("replicas have %d", a.cores))
	}
	return property(int(a.deviceIndices[replica*a.cores+core])), nil
}

// Coordinates returns the coordinates of a logical core (TensorFlow's DeviceAssignment.coordinates).
func (a DeviceAssignment) Coordinates(replica, core int) (Coordinates, error) {
	return coreProperty(a, replica, core, func(i int) Coordinates { return a.topology.coords[i] })
}

// DeviceID returns the runtime's device id of a logical core.
func (a DeviceAssignment) DeviceID(replica, core int) (int, error) {
	return coreProperty(a, replica, core, a.topology.idAt)
}

// Task returns the task of a logical core's device.
func (a DeviceAssignment) Task(replica, core int) (int, error) {
	return coreProperty(a, replica, core, a.topology.taskAt)
}

// TPUOrdinal returns the index of a logical core's device within its task (TensorFlow's
// DeviceAssignment.tpu_ordinal).
func (a DeviceAssignment) TPUOrdinal(replica, core int) (int, error) {
	return coreProperty(a, replica, core, a.topology.ordinalAt)
}

// TPUDevice returns the name of a logical core's device, such as /job:worker/task:0/device:TPU:3.
// If job is "", the name starts with the task (TensorFlow's DeviceAssignment.tpu_device).
func (a DeviceAssignment) TPUDevice(replica, core int, job string) (string, error) {
	return coreProperty(a, replica, core, a.topology.tpuNameFunc(job))
}

// HostDevice returns the name of the CPU device on the host of a logical core, such as
// /job:worker/task:0/device:CPU:0 (TensorFlow's DeviceAssignment.host_device).
func (a DeviceAssignment) HostDevice(replica, core int, job string) (string, error) {
	return coreProperty(a, replica, core, a.topology.hostNameFunc(job))
}

// LookupReplicas returns the replicas whose logical core with the given number is on the given
// task, in ascending order (TensorFlow's DeviceAssignment.lookup_replicas). If there are no such
// replicas, it returns an error.
func (a DeviceAssignment) LookupReplicas(task, core int) ([]int, error) {
	var replicas []int
	if core >= 0 && core < a.cores {
		for r := range a.replicas {
			if int(a.deviceIndices[r*a.cores+core])/a.topology.perTask == task {
				replicas = append(replicas, r)
			}
		}
	}
	if replicas == nil {
		return nil, lookupError(fmt.Sprintf("no replica has its logical core %d on task %d", core, task), "")
	}
	return replicas, nil
}

// LookupDevice returns the replica and logical core of a device. ok is false if the device is not
// assigned. LookupDevice is the inverse of [DeviceAssignment.DeviceID].
func (a DeviceAssignment) LookupDevice(deviceID int) (replica, core int, ok bool) {
	i, ok := a.topology.byID[deviceID]
	if !ok {
		return 0, 0, false
	}
	k := slices.Index(a.deviceIndices, i)
	if k < 0 {
		return 0, 0, false
	}
	return k / a.cores, k % a.cores, true
}

// Equal reports whether both assignments assign the same cores and have equal topologies.
func (a DeviceAssignment) Equal(other DeviceAssignment) bool {
	return a.replicas == other.replicas && a.cores == other.cores &&
		slices.Equal(a.deviceIndices, other.deviceIndices) && a.topology.Equal(other.topology)
}

// String returns the size of the assignment, such as "DeviceAssignment(4 replicas of 2 cores)".
func (a DeviceAssignment) String() string {
	return fmt.Sprintf("DeviceAssignment(%d replicas of %d cores)", a.replicas, a.cores)
}

// AssignmentError reports an invalid device assignment.
type AssignmentError struct {
	// Option is the field of [AssignmentOptions] to change, or "Cores" for the cores passed to
	// [NewDeviceAssignment].
	Option string
	// MaxReplicas is the number of replicas that fit, if Option is "Replicas".
	MaxReplicas int
	// Reason describes the problem. Hint is the correction and may be empty.
	Reason, Hint string
}

// Error returns "tpu: device assignment: option: reason; hint" in one line.
func (e *AssignmentError) Error() string {
	return errkind.Format("tpu: device assignment: "+e.Option, e.Reason, nil, e.Hint)
}

// Kind returns ValueError.
func (*AssignmentError) Kind() errkind.Kind { return errkind.ValueError }

func assignmentError(option, hint, format string, args ...any) error {
	return &AssignmentError{Option: option, Reason: fmt.Sprintf(format, args...), Hint: hint}
}
