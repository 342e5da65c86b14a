package tpu

import "fmt"

// NumSlices returns the number of equal slices that the data-center network joins, at least 1. Within
// a slice chips are joined by their own interconnect, which is many times faster.
func (t Topology) NumSlices() int { return max(t.slices, 1) }

// SliceOf returns the number of the slice that has a place of the mesh. The slices stand side by side
// along x.
func (t Topology) SliceOf(c Coordinates) int { return c[0] / t.sliceWidth() }

// sliceWidth is the size of a slice along x.
func (t Topology) sliceWidth() int { return max(t.mesh[0]/t.NumSlices(), 1) }

// Spanning returns, ascending, the replicas whose logical cores are on several slices. What these say
// to each other crosses the data-center network in every layer of a model.
func (a DeviceAssignment) Spanning() []int {
	var replicas []int
	if a.topology.NumSlices() == 1 {
		return nil
	}
	for r := range a.replicas {
		row := a.assigned[r*a.cores : (r+1)*a.cores]
		for _, i := range row {
			if a.topology.SliceOf(a.topology.coords[i]) != a.topology.SliceOf(a.topology.coords[row[0]]) {
				replicas = append(replicas, r)
				break
			}
		}
	}
	return replicas
}

// BySlice reports whether each slice has whole replicas, as many as each other, slice by slice, as
// [AssignmentOptions].BySlice makes them.
func (a DeviceAssignment) BySlice() bool {
	slices := a.topology.NumSlices()
	if a.replicas%slices != 0 {
		return false
	}
	for k, i := range a.assigned {
		if a.topology.SliceOf(a.topology.coords[i]) != k/a.cores/(a.replicas/slices) {
			return false
		}
	}
	return true
}

// MixesSlices reports whether the replicas of one logical device, in their order, are on several
// slices neither slice by slice nor slice after slice in turn. The TPU's compiler cannot scatter a sum
// over replicas in such an order.
func (a DeviceAssignment) MixesSlices() bool {
	for core := range a.cores {
		on := make([]int, a.replicas) // the slice of each replica's device
		count := map[int]int{}
		for r := range on {
			on[r] = a.topology.SliceOf(a.topology.coords[a.assigned[r*a.cores+core]])
			count[on[r]]++
		}
		bySlice, inTurn := true, true
		each, of := len(on)/max(len(count), 1), len(count)
		for r := range on {
			bySlice = bySlice && count[on[r]] == each && on[r] == on[r/each*each]
			inTurn = inTurn && count[on[r]] == each && on[r] == on[r%of]
		}
		if !bySlice && !inTurn {
			return true
		}
	}
	return false
}

// Fit returns how many replicas of the options' shape and stride fit on a topology, with BySlice in
// all slices together. Replicas does not count. Its errors are those of [BuildDeviceAssignment].
func (o AssignmentOptions) Fit(topology Topology) (int, error) {
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
	return plan.fit * slices, nil
}

// perSlice turns a request for all slices into that for one, as each has the same.
func perSlice(topology Topology, o AssignmentOptions) (Topology, AssignmentOptions, error) {
	slices := topology.NumSlices()
	if !o.BySlice || slices == 1 {
		return topology, o, nil
	}
	if topology.hasMissing() {
		return topology, o, assignmentError("BySlice", "leave it out, or assign cores by NewDeviceAssignment", "the slices are not equal: devices are missing")
	}
	if o.Replicas%slices != 0 || o.Replicas == 0 {
		return topology, o, &AssignmentError{Option: "Replicas", Reason: fmt.Sprintf("%d replicas cannot be shared by %d slices equally", max(o.Replicas, 1), slices),
			Hint: fmt.Sprintf("take a multiple of %d", slices)}
	}
	o.Replicas /= slices
	topology.mesh[0] /= slices
	return topology, o, nil
}
