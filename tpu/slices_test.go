package tpu_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/tpu"
)

// newSlices returns a topology of n slices with 4x4 chips each and four devices per host.
func newSlices(t *testing.T, n int) tpu.Topology {
	topology, err := tpu.LogicalTopology(tpu.LogicalOptions{MeshShape: []int{4 * n, 4, 1, 1}, Tasks: 4 * n, Slices: n})
	require.NoError(t, err)
	return topology
}

func TestBySliceRepeatsAssignmentOfOneSlice(t *testing.T) {
	for _, shape := range [][]int{nil, {2, 2, 1, 1}, {4, 1, 1, 1}, {1, 4, 1, 1}, {4, 4, 1, 1}} {
		for _, n := range []int{1, 2, 3} {
			options := tpu.AssignmentOptions{ComputationShape: shape, BySlice: true}
			fit, err := options.MaxReplicas(newSlices(t, n))
			require.NoError(t, err)
			options.Replicas = fit
			all, err := tpu.BuildDeviceAssignment(newSlices(t, n), options)
			require.NoError(t, err)
			one, err := tpu.BuildDeviceAssignment(newSlices(t, 1), tpu.AssignmentOptions{ComputationShape: shape,
				Replicas: fit / n})
			require.NoError(t, err)
			require.NoError(t, all.Validate())
			assert.True(t, all.IsBySlice())
			assert.Empty(t, all.ReplicasAcrossSlices())
			want := one.CoreAssignment()
			for r, row := range all.CoreAssignment() {
				slice := r / (fit / n)
				for p, c := range row {
					assert.Equal(t, slice, all.Topology().SliceOf(c))
					c[0] -= 4 * slice
					assert.Equal(t, want[r%(fit/n)][p], c, "replica %d, core %d of %v on %d slices", r, p, shape, n)
				}
			}
		}
	}
}

func TestWithoutBySliceReplicasMaySpanSlices(t *testing.T) {
	two := newSlices(t, 2)
	wide, err := tpu.BuildDeviceAssignment(two, tpu.AssignmentOptions{ComputationShape: []int{8, 1, 1, 1}, Replicas: 4})
	require.NoError(t, err)
	assert.Equal(t, []int{0, 1, 2, 3}, wide.ReplicasAcrossSlices())
	assert.False(t, wide.IsBySlice())

	// No replica spans slices, but TensorFlow's ring alternates between the slices.
	ring, err := tpu.BuildDeviceAssignment(two, tpu.AssignmentOptions{ComputationShape: []int{2, 2, 1, 1}, Replicas: 8})
	require.NoError(t, err)
	assert.Empty(t, ring.ReplicasAcrossSlices())
	order := []int{}
	for _, row := range ring.CoreAssignment() {
		order = append(order, two.SliceOf(row[0]))
	}
	assert.Equal(t, slices.IsSorted(order), ring.IsBySlice(), "%v", order)

	for _, c := range []struct {
		shape   []int
		bySlice bool
		mixes   bool
	}{{[]int{1, 1, 1, 1}, false, true}, {[]int{1, 1, 1, 1}, true, false}, {[]int{2, 2, 1, 1}, true, false},
		{[]int{8, 4, 1, 1}, false, false}} {
		a, err := tpu.BuildDeviceAssignment(two, tpu.AssignmentOptions{ComputationShape: c.shape,
			Replicas: 32 / (c.shape[0] * c.shape[1]), BySlice: c.bySlice})
		require.NoError(t, err)
		assert.Equal(t, c.mixes, a.HasMixedSliceOrder(), "%v", c)
	}
}

func TestBySliceRejectsUnequalSlices(t *testing.T) {
	two := newSlices(t, 2)
	for want, options := range map[string]tpu.AssignmentOptions{
		"Replicas: 3 replicas cannot be divided equally among 2 slices; use a multiple of 2": {Replicas: 3, BySlice: true},
		"Replicas: 1 replicas cannot be divided equally among 2 slices":                      {BySlice: true},
		"does not fit into the mesh (4,4,1,1)": {ComputationShape: []int{8, 1,
			1, 1}, Replicas: 2, BySlice: true},
		"17 replicas of shape (1,1,1,1) and stride (1,1,1,1) do not fit on a mesh of shape (4,4,1,1) with 16 devices, on " +
			"each of 2 slices; at most 32 replicas fit": {Replicas: 34, BySlice: true},
	} {
		_, err := tpu.BuildDeviceAssignment(two, options)
		var assignmentErr *tpu.AssignmentError
		require.ErrorAs(t, err, &assignmentErr, want)
		assert.ErrorContains(t, err, want)
	}
	_, err := tpu.LogicalTopology(tpu.LogicalOptions{MeshShape: []int{3, 1, 1, 1}, Slices: 2})
	require.ErrorIs(t, err, tpu.ErrTopology)
	assert.ErrorContains(t, err, "tpu: topology: Slices: ")
	_, err = tpu.LogicalTopology(tpu.LogicalOptions{Devices: 2, Slices: -1})
	require.ErrorIs(t, err, tpu.ErrTopology)
	holes, err := tpu.NewTopology(tpu.TopologyOptions{MeshShape: []int{4, 1, 1, 1}, Slices: 2,
		DeviceCoordinates: [][]tpu.Coordinates{{{0, 0, 0, 0}, {2, 0, 0, 0}, {3, 0, 0, 0}}}})
	require.NoError(t, err)
	_, err = tpu.BuildDeviceAssignment(holes, tpu.AssignmentOptions{Replicas: 2, BySlice: true})
	assert.ErrorContains(t, err, "BySlice: the slices are not equal because devices are missing")
	assert.Equal(t, 1, tpu.Topology{}.NumSlices())
}
