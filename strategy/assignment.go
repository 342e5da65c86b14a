package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// newAssignment assigns devices to the replicas. If bySlice is set, all devices of a replica are on
// the same slice. Otherwise it prefers TensorFlow's order, unless that order mixes the slices.
func newAssignment(topology tpu.Topology, replicas, logicalDevices int, bySlice bool) (tpu.DeviceAssignment, error) {
	assignment, err := assignBlocks(topology, replicas, logicalDevices, bySlice)
	if err == nil && assignment.HasMixedSliceOrder() {
		if better, err := assignBlocks(topology, assignment.NumReplicas(), logicalDevices, true); err == nil {
			return better, nil
		}
	}
	return assignment, err
}

// assignBlocks builds a device assignment in which the logical devices of a replica form a block:
// first the cores of a chip, then neighboring chips. If bySlice is set, a block is within one
// slice.
func assignBlocks(topology tpu.Topology, replicas, logicalDevices int, bySlice bool) (tpu.DeviceAssignment, error) {
	if replicas < 0 || logicalDevices < 0 {
		return tpu.DeviceAssignment{}, &OptionError{Option: "Replicas", Reason: fmt.Sprintf(
			"%d replicas of %d logical devices; both are counts", replicas, logicalDevices)}
	}
	rest := max(logicalDevices, 1)
	shape := []int{1, 1, 1, 1}
	mesh := topology.MeshShape()
	if bySlice {
		mesh[0] /= topology.NumSlices()
	}
	for axis := len(mesh) - 1; axis >= 0; axis-- {
		shape[axis] = gcd(rest, mesh[axis])
		rest /= shape[axis]
	}
	if rest != 1 {
		return tpu.DeviceAssignment{}, &OptionError{Option: "LogicalDevices", Reason: fmt.Sprintf(
			"no block of %d devices divides the mesh %v; take %s", logicalDevices, mesh, formatBlockSizes(mesh))}
	}
	if replicas == 0 {
		var err error
		if replicas, err = (tpu.AssignmentOptions{ComputationShape: shape,
			BySlice: bySlice}).MaxReplicas(topology); err != nil {
			return tpu.DeviceAssignment{}, &OptionError{Option: "LogicalDevices", Reason: "does not fit", Err: err}
		}
	}
	assignment, err := tpu.BuildDeviceAssignment(topology, tpu.AssignmentOptions{ComputationShape: shape,
		Replicas: replicas, BySlice: bySlice})
	if err != nil {
		return tpu.DeviceAssignment{}, &OptionError{Option: "Replicas", Reason: "does not fit", Err: err}
	}
	return assignment, nil
}

func formatBlockSizes(mesh [4]int) string {
	sizes := []int{1}
	for _, length := range mesh {
		for _, size := range slices.Clone(sizes) {
			for n := 2; n <= length; n++ {
				if length%n == 0 && !slices.Contains(sizes, n*size) {
					sizes = append(sizes, n*size)
				}
			}
		}
	}
	slices.Sort(sizes)
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(sizes), " ", ", "), "[]")
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// checkSlices returns an error if the assignment violates [Options].BySlice or would crash the TPU
// compiler. It logs a warning if a replica has logical devices on several slices.
func checkSlices(topology tpu.Topology, assignment tpu.DeviceAssignment, opts Options) error {
	if opts.BySlice && !assignment.IsBySlice() {
		return &OptionError{Option: "BySlice",
			Reason: "the Assignment does not give each slice whole replicas, slice by slice; build it with " +
				"tpu.AssignmentOptions.BySlice"}
	}
	if opts.Variables.UsesAxis(logical.ReplicaAxis) && assignment.HasMixedSliceOrder() {
		return &OptionError{Option: "Assignment", Reason: fmt.Sprintf("the %d replicas share out state over %d slices, in "+
			"an order that mixes the slices: the TPU's compiler ends the process for that; "+
			"set BySlice, with a number of replicas that the slices share equally, in place of an Assignment, or give one "+
			"that is made with tpu.AssignmentOptions.BySlice", assignment.NumReplicas(), topology.NumSlices())}
	}
	spanning := assignment.ReplicasAcrossSlices()
	if len(spanning) == 0 || opts.Logger == nil {
		return nil
	}
	opts.Logger.Warn("strategy: logical devices of a replica are on several slices: what they say to each other in "+
		"each layer crosses the data-center network; "+
		"set Options.BySlice, or take fewer logical devices", "replicas", len(spanning), "of",
		assignment.NumReplicas(), "first", spanning[0],
		"logical_devices", assignment.NumCoresPerReplica(), "slices", topology.NumSlices())
	return nil
}

// deviceNames returns TensorFlow's names of the replica's logical devices, and TensorFlow's name of
// the CPU of the replica's host.
func (s *TPUStrategy) deviceNames(replica int) (devices []string, host string) {
	job, platform := "worker", strings.ToUpper(s.runtime.Platform())
	if platform == "CPU" {
		job = "localhost"
	}
	name := func(task int, platform string, ordinal int) string {
		return fmt.Sprintf("/job:%s/replica:0/task:%d/device:%s:%d", job, task, platform, ordinal)
	}
	topology, column := s.runtime.Topology(), s.assignment.DeviceIDs()[replica]
	for _, id := range column {
		task, _ := topology.TaskOfDevice(id)
		devices = append(devices, name(task, platform, slices.Index(topology.DeviceIDs()[task], id)))
	}
	task, _ := topology.TaskOfDevice(column[0])
	return devices, name(task, "CPU", 0)
}

// Devices returns TensorFlow's name of one logical device for each replica, in replica order.
// [Variable.Shards] lists all logical devices.
func (v *Variable) Devices() []string {
	names := make([]string, v.strategy.replicas)
	for r := range names {
		of, _ := v.strategy.deviceNames(r)
		names[r] = of[v.column]
	}
	return names
}

// mapPartitions maps each partition of m to the partition of other that runs on the same device. It
// returns false if other does not have all devices of m.
func mapPartitions(m, other *engine.Runtime) ([]int, bool) {
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
	return all, len(all) > 0 // empty ahead of time
}
