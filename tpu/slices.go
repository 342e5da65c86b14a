package tpu

import "fmt"

// NumSlices returns the number of slices, which all have the same shape. Slices are connected by
// the data-center network, which is much slower than the interconnect between the chips of a slice.
func (t Topology) NumSlices() int { return max(t.slices, 1) }

// SliceOf returns the index of the slice that contains coordinates c. Slices are adjacent along x.
func (t Topology) SliceOf(c Coordinates) int { return c[0] / t.sliceWidth() }

// sliceWidth returns the size of a slice along x.
func (t Topology) sliceWidth() int { return max(t.mesh[0]/t.NumSlices(), 1) }

// ReplicasAcrossSlices returns the replicas whose logical cores are on several slices, in ascending
// order. Such replicas communicate over the slow data-center network in every layer of a model.
func (a DeviceAssignment) ReplicasAcrossSlices() []int {
	var replicas []int
	if a.topology.NumSlices() == 1 {
		return nil
	}
	for r := range a.replicas {
		row := a.deviceIndices[r*a.cores : (r+1)*a.cores]
		for _, i := range row {
			if a.topology.SliceOf(a.topology.coords[i]) != a.topology.SliceOf(a.topology.coords[row[0]]) {
				replicas = append(replicas, r)
				break
			}
		}
	}
	return replicas
}

// IsBySlice reports whether the replicas are grouped by slice, as with [AssignmentOptions].BySlice:
// each replica is on one slice, and each slice has the same number of consecutive replicas.
func (a DeviceAssignment) IsBySlice() bool {
	slices := a.topology.NumSlices()
	if a.replicas%slices != 0 {
		return false
	}
	for k, i := range a.deviceIndices {
		if a.topology.SliceOf(a.topology.coords[i]) != k/a.cores/(a.replicas/slices) {
			return false
		}
	}
	return true
}

// HasMixedSliceOrder reports whether the replicas of some logical core are on slices in an order
// that is neither grouped by slice (such as 0 0 1 1) nor round-robin (such as 0 1 0 1). The TPU
// compiler does not support reduce-scatter over replicas in other orders.
func (a DeviceAssignment) HasMixedSliceOrder() bool {
	for core := range a.cores {
		replicaSlices := make([]int, a.replicas)
		sizes := map[int]int{}
		for r := range replicaSlices {
			replicaSlices[r] = a.topology.SliceOf(a.topology.coords[a.deviceIndices[r*a.cores+core]])
			sizes[replicaSlices[r]]++
		}
		bySlice, roundRobin := true, true
		perSlice, numSlices := len(replicaSlices)/max(len(sizes), 1), len(sizes)
		for r := range replicaSlices {
			bySlice = bySlice && sizes[replicaSlices[r]] == perSlice && replicaSlices[r] == replicaSlices[r/perSlice*perSlice]
			roundRobin = roundRobin && sizes[replicaSlices[r]] == perSlice && replicaSlices[r] == replicaSlices[r%numSlices]
		}
		if !bySlice && !roundRobin {
			return true
		}
	}
	return false
}

// MaxReplicas returns how many replicas with the shape and stride of o fit onto all slices of the
// topology together. It ignores o.Replicas. Errors are as for [BuildDeviceAssignment].
func (o AssignmentOptions) MaxReplicas(topology Topology) (int, error) {
	o.Replicas = 0
	slices := 1
	if o.BySlice {
		slices = topology.NumSlices()
		o.Replicas = slices
	}
	plan, err := newPlan(topology, o)
	if err != nil {
		return 0, err
	}
	return plan.maxReplicas * slices, nil
}

// perSliceOptions returns its arguments unchanged unless o.BySlice is set. If o.BySlice is set, it
// returns the topology of a single slice, and the options for the replicas on that slice.
func perSliceOptions(topology Topology, o AssignmentOptions) (Topology, AssignmentOptions, error) {
	slices := topology.NumSlices()
	if !o.BySlice || slices == 1 {
		return topology, o, nil
	}
	if topology.hasMissing() {
		return topology, o, assignmentError("BySlice", "do not set it, or assign cores with NewDeviceAssignment",
			"the slices are not equal because devices are missing")
	}
	if o.Replicas%slices != 0 || o.Replicas == 0 {
		return topology, o, &AssignmentError{Option: "Replicas", Hint: fmt.Sprintf("use a multiple of %d", slices),
			Reason: fmt.Sprintf("%d replicas cannot be divided equally among %d slices", max(o.Replicas, 1), slices)}
	}
	o.Replicas /= slices
	topology.mesh[0] /= slices
	return topology, o, nil
}
