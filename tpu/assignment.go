package tpu

import (
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// DeviceAssignment says which core of a slice is logical device p of replica r. It is TensorFlow's
// tf.tpu.experimental.DeviceAssignment.
//
// A DeviceAssignment is an immutable value, the same in every process, and may be shared between
// goroutines. The zero DeviceAssignment has no replicas.
type DeviceAssignment struct {
	topology Topology
	replicas int
	cores    int
	assigned []int32 // replica, then logical core -> device index of the topology
}

// NewDeviceAssignment returns the assignment of cores[r][p] to logical core p of replica r, for
// placements that [BuildDeviceAssignment] does not make. All replicas have the same number of
// cores, and every coordinate has a device. As in TensorFlow, a core may be given twice; a program
// cannot be compiled for such an assignment (see [DeviceAssignment.Validate]).
func NewDeviceAssignment(topology Topology, cores [][]Coordinates) (DeviceAssignment, error) {
	a := DeviceAssignment{topology: topology, replicas: len(cores)}
	if len(cores) > 0 {
		a.cores = len(cores[0])
	}
	for r, row := range cores {
		if len(row) != a.cores {
			return DeviceAssignment{}, assignmentError("Cores", "give all the same number", "replica %d has %d cores and replica 0 has %d",
				r, len(row), a.cores)
		}
		for p, c := range row {
			i, err := topology.find(c)
			if err != nil {
				return DeviceAssignment{}, &errkind.Fault{Op: "tpu: device assignment", Subject: fmt.Sprintf("of replica %d, logical core %d", r, p), Err: err}
			}
			a.assigned = append(a.assigned, int32(i))
		}
	}
	return a, nil
}

// Validate reports the first core that is assigned twice, or nil.
func (a DeviceAssignment) Validate() error {
	seen := make(map[int32]int, len(a.assigned))
	for k, i := range a.assigned {
		if earlier, taken := seen[i]; taken {
			return assignmentError("Cores", "", "the core at %v is logical core %d of replica %d and logical core %d of replica %d",
				a.topology.coords[i], earlier%a.cores, earlier/a.cores, k%a.cores, k/a.cores)
		}
		seen[i] = k
	}
	return nil
}

// Topology returns the slice that the assignment is of (TensorFlow's DeviceAssignment.topology).
func (a DeviceAssignment) Topology() Topology { return a.topology }

// NumReplicas returns the number of replicas (TensorFlow's DeviceAssignment.num_replicas).
func (a DeviceAssignment) NumReplicas() int { return a.replicas }

// NumCoresPerReplica returns the number of logical cores of each replica (TensorFlow's
// DeviceAssignment.num_cores_per_replica).
func (a DeviceAssignment) NumCoresPerReplica() int { return a.cores }

// CoreAssignment returns a copy of the coordinates by replica and logical core (TensorFlow's
// DeviceAssignment.core_assignment).
func (a DeviceAssignment) CoreAssignment() [][]Coordinates {
	return table(a, func(i int32) Coordinates { return a.topology.coords[i] })
}

// DeviceIDs returns the runtime's device ids by replica and logical core. In this order they are
// the devices of the partitions of a program: partition r*NumCoresPerReplica + p runs on
// DeviceIDs()[r][p].
func (a DeviceAssignment) DeviceIDs() [][]int {
	return table(a, func(i int32) int { return a.topology.ids[i] })
}

func table[T any](a DeviceAssignment, value func(int32) T) [][]T {
	rows := make([][]T, a.replicas)
	for r := range rows {
		rows[r] = make([]T, a.cores)
		for p := range rows[r] {
			rows[r][p] = value(a.assigned[r*a.cores+p])
		}
	}
	return rows
}

// ofCore returns what of says about the device of a logical core, by its number in the topology.
func ofCore[T any](a DeviceAssignment, replica, logical int, of func(i int) T) (value T, err error) {
	if replica < 0 || replica >= a.replicas {
		return value, lookUp(fmt.Sprintf("no replica %d", replica), fmt.Sprintf("the assignment has %d", a.replicas))
	}
	if logical < 0 || logical >= a.cores {
		return value, lookUp(fmt.Sprintf("no logical core %d", logical), fmt.Sprintf("replicas have %d", a.cores))
	}
	return of(int(a.assigned[replica*a.cores+logical])), nil
}

// Coordinates returns the place of a logical core (TensorFlow's DeviceAssignment.coordinates).
func (a DeviceAssignment) Coordinates(replica, logical int) (Coordinates, error) {
	return ofCore(a, replica, logical, func(i int) Coordinates { return a.topology.coords[i] })
}

// DeviceID returns the runtime's id of the device of a logical core.
func (a DeviceAssignment) DeviceID(replica, logical int) (int, error) {
	return ofCore(a, replica, logical, a.topology.id)
}

// Task returns the task that has a logical core.
func (a DeviceAssignment) Task(replica, logical int) (int, error) {
	return ofCore(a, replica, logical, a.topology.task)
}

// TPUOrdinal returns the number of a logical core within its task (TensorFlow's
// DeviceAssignment.tpu_ordinal).
func (a DeviceAssignment) TPUOrdinal(replica, logical int) (int, error) {
	return ofCore(a, replica, logical, a.topology.ordinal)
}

// TPUDevice returns the name of the device of a logical core, such as
// /job:worker/task:0/device:TPU:3; an empty job leaves out its part (TensorFlow's
// DeviceAssignment.tpu_device).
func (a DeviceAssignment) TPUDevice(replica, logical int, job string) (string, error) {
	return ofCore(a, replica, logical, a.topology.tpuName(job))
}

// HostDevice returns the name of the host of a logical core, such as
// /job:worker/task:0/device:CPU:0 (TensorFlow's DeviceAssignment.host_device).
func (a DeviceAssignment) HostDevice(replica, logical int, job string) (string, error) {
	return ofCore(a, replica, logical, a.topology.hostName(job))
}

// LookupReplicas returns, ascending, the replicas whose given logical core is on a task
// (TensorFlow's DeviceAssignment.lookup_replicas). It fails if there are none.
func (a DeviceAssignment) LookupReplicas(task, logical int) ([]int, error) {
	var replicas []int
	if logical >= 0 && logical < a.cores {
		for r := range a.replicas {
			if int(a.assigned[r*a.cores+logical])/a.topology.perTask == task {
				replicas = append(replicas, r)
			}
		}
	}
	if replicas == nil {
		return nil, lookUp(fmt.Sprintf("no replica has its logical core %d on task %d", logical, task), "")
	}
	return replicas, nil
}

// Lookup returns the logical core that runs on the device with the given id, and whether there is
// one. It undoes [DeviceAssignment.DeviceID].
func (a DeviceAssignment) Lookup(deviceID int) (replica, logical int, ok bool) {
	i, ok := a.topology.byID[deviceID]
	if !ok {
		return 0, 0, false
	}
	k := slices.Index(a.assigned, i)
	if k < 0 {
		return 0, 0, false
	}
	return k / a.cores, k % a.cores, true
}

// Equal reports whether both assignments put the same logical cores on the same cores of equal
// topologies.
func (a DeviceAssignment) Equal(other DeviceAssignment) bool {
	return a.replicas == other.replicas && a.cores == other.cores &&
		slices.Equal(a.assigned, other.assigned) && a.topology.Equal(other.topology)
}

// String returns a line such as DeviceAssignment(4 replicas of 2 cores).
func (a DeviceAssignment) String() string {
	return fmt.Sprintf("DeviceAssignment(%d replicas of %d cores)", a.replicas, a.cores)
}

// AssignmentError reports why an assignment cannot be made.
type AssignmentError struct {
	// Option is the field of [AssignmentOptions] to change, or "Cores" for the cores given to
	// [NewDeviceAssignment].
	Option string
	// Fit is the number of replicas that fit, if Option is "Replicas".
	Fit int
	// Reason says what is wrong, and Hint what to write instead; Hint may be empty.
	Reason, Hint string
}

// Error returns "tpu: device assignment: option: reason; hint", in one line.
func (e *AssignmentError) Error() string {
	return errkind.Text("tpu: device assignment: "+e.Option, e.Reason, nil, e.Hint)
}

// Kind returns ValueError.
func (*AssignmentError) Kind() errkind.Kind { return errkind.ValueError }

func assignmentError(option, hint, format string, args ...any) error {
	return &AssignmentError{Option: option, Reason: fmt.Sprintf(format, args...), Hint: hint}
}
