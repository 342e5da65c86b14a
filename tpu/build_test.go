package tpu

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func logical(t testing.TB, shape ...int) Topology {
	t.Helper()
	topology, err := LogicalTopology(LogicalOptions{MeshShape: shape})
	require.NoError(t, err)
	return topology
}

func TestAutoOrderIsRingOrder(t *testing.T) {
	a, err := BuildDeviceAssignment(logical(t, 2, 2, 1, 2), AssignmentOptions{ComputationShape: []int{1, 1, 1, 2},
		Replicas: 4})
	require.NoError(t, err)
	ordinals := [][]int{}
	for r := range 4 {
		var row []int
		for p := range 2 {
			ordinal, err := a.TPUOrdinal(r, p)
			require.NoError(t, err)
			row = append(row, ordinal)
		}
		ordinals = append(ordinals, row)
	}
	// Devices of a logical topology are numbered with y faster than x, so the ring is 0, 2, 3, 1.
	assert.Equal(t, [][]int{{0, 1}, {4, 5}, {6, 7}, {2, 3}}, ordinals)
	assert.Equal(t, "DeviceAssignment(4 replicas of 2 cores)", a.String())
	partial, err := BuildDeviceAssignment(logical(t, 2, 2, 1, 2), AssignmentOptions{ComputationShape: []int{1, 1, 1, 2},
		Replicas: 3, Order: MeshOrder})
	require.NoError(t, err)
	auto, err := BuildDeviceAssignment(logical(t, 2, 2, 1, 2), AssignmentOptions{ComputationShape: []int{1, 1, 1, 2},
		Replicas: 3})
	require.NoError(t, err)
	assert.True(t, partial.Equal(auto), "AUTO is MESH if the replicas do not fill the mesh")
}

func TestBuildDeviceAssignmentErrorsContainOption(t *testing.T) {
	topology := logical(t, 2, 2, 1, 2)
	for name, test := range map[string]struct {
		options AssignmentOptions
		option  string
		fit     int
	}{
		"shape rank comes first": {AssignmentOptions{ComputationShape: []int{1}, ComputationStride: []int{1}},
			"ComputationShape", 0},
		"stride rank": {AssignmentOptions{ComputationShape: []int{0, 1, 1, 1}, ComputationStride: []int{1}},
			"ComputationStride", 0},
		"shape sign": {AssignmentOptions{ComputationShape: []int{0, 1, 1, 1}, ComputationStride: []int{0, 1, 1,
			1}}, "ComputationShape", 0},
		"stride sign": {AssignmentOptions{ComputationStride: []int{0, 1, 1, 1}}, "ComputationStride", 0},
		"footprint":   {AssignmentOptions{ComputationShape: []int{1, 2, 2, 2}}, "ComputationShape", 0},
		"footprint overflow": {AssignmentOptions{ComputationShape: []int{1 << 62, 1, 1, 1}, ComputationStride: []int{4, 1,
			1, 1}}, "ComputationShape", 0},
		"replicas":          {AssignmentOptions{ComputationShape: []int{1, 1, 1, 2}, Replicas: 5}, "Replicas", 4},
		"negative replicas": {AssignmentOptions{Replicas: -1}, "Replicas", 0},
		"ring":              {AssignmentOptions{Replicas: 3, Order: RingOrder}, "Order", 0},
		"order":             {AssignmentOptions{Order: 7}, "Order", 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := BuildDeviceAssignment(topology, test.options)
			var bad *AssignmentError
			require.ErrorAs(t, err, &bad)
			assert.Equal(t, test.option, bad.Option, err)
			assert.Equal(t, test.fit, bad.MaxReplicas)
		})
	}
	_, err := BuildDeviceAssignment(Topology{}, AssignmentOptions{})
	assert.ErrorContains(t, err, "topology is empty")
}

// The replicas fit on the mesh that the error suggests.
func TestBuildDeviceAssignmentSuggestsMeshShape(t *testing.T) {
	const named = "in system.Options.MeshShape or tpu.LogicalOptions.MeshShape"
	for name, test := range map[string]struct {
		logical LogicalOptions
		options AssignmentOptions
		named   bool
	}{
		"TensorFlow's shape": {LogicalOptions{Devices: 8}, AssignmentOptions{ComputationShape: []int{1, 2, 2, 2}},
			true},
		"its half": {LogicalOptions{Devices: 8}, AssignmentOptions{ComputationShape: []int{1, 2, 1, 2},
			Replicas: 2}, true},
		"with a stride": {LogicalOptions{Devices: 16}, AssignmentOptions{ComputationShape: []int{1, 2, 1, 2},
			ComputationStride: []int{1, 2, 1, 1}, Replicas: 4}, true},
		"on slices": {LogicalOptions{Devices: 16, Slices: 2}, AssignmentOptions{ComputationShape: []int{1, 2,
			2, 1}, Replicas: 4, BySlice: true}, true},
		"replicas of odd rows": {LogicalOptions{Devices: 12}, AssignmentOptions{ComputationShape: []int{4, 1, 1, 1},
			Replicas: 3}, true},
		"more than the devices": {LogicalOptions{Devices: 8}, AssignmentOptions{ComputationShape: []int{2, 2, 2, 2}},
			false},
		"a part of the devices": {LogicalOptions{Devices: 8}, AssignmentOptions{ComputationShape: []int{1, 3, 1, 1}},
			false},
		"too many replicas": {LogicalOptions{Devices: 8}, AssignmentOptions{ComputationShape: []int{1, 2, 2, 2},
			Replicas: 2}, false},
		"a shape that overflows": {LogicalOptions{Devices: 8}, AssignmentOptions{ComputationShape: []int{1 << 62, 1, 1, 1}},
			false},
		"a product that overflows": {LogicalOptions{Devices: 8}, AssignmentOptions{ComputationShape: []int{1 << 32, 1 << 32,
			1 << 32, 1}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			topology, err := LogicalTopology(test.logical)
			require.NoError(t, err)
			_, err = BuildDeviceAssignment(topology, test.options)
			require.Error(t, err)
			text, _, found := strings.Cut(err.Error(), named)
			require.Equal(t, test.named, found, err)
			if !found {
				return
			}
			shape := make([]int, MeshRank)
			_, text, _ = strings.Cut(text, "[]int{")
			_, err = fmt.Sscanf(text, "%d, %d, %d, %d}", &shape[0], &shape[1], &shape[2], &shape[3])
			require.NoError(t, err)
			test.logical.MeshShape = shape
			topology, err = LogicalTopology(test.logical)
			require.NoError(t, err)
			_, err = BuildDeviceAssignment(topology, test.options)
			assert.NoError(t, err)
		})
	}
	slice, err := ParseAccelerator("v5e:4x4")
	require.NoError(t, err)
	own, err := slice.Topology()
	require.NoError(t, err)
	_, err = BuildDeviceAssignment(own, AssignmentOptions{ComputationShape: []int{1, 2, 2, 2}})
	assert.NotContains(t, err.Error(), "MeshShape", "the mesh of a TPU cannot be changed")
}

func TestRandomAssignmentsAreBijections(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	built := 0
	for range 8000 {
		topology := randomTopology(t, rng)
		options := AssignmentOptions{Order: DeviceOrder(rng.IntN(3))}
		for range MeshRank {
			options.ComputationShape = append(options.ComputationShape, rng.IntN(3)+1)
			options.ComputationStride = append(options.ComputationStride, 1+rng.IntN(2)*rng.IntN(2))
		}
		most, err := AssignmentOptions{ComputationShape: options.ComputationShape,
			ComputationStride: options.ComputationStride}.MaxReplicas(topology)
		if err != nil {
			continue
		}
		options.Replicas = most
		if rng.IntN(2) == 0 {
			options.Replicas = rng.IntN(most) + 1
		}
		a, err := BuildDeviceAssignment(topology, options)
		if options.Order == RingOrder && err != nil {
			continue
		}
		require.NoError(t, err)
		built++
		require.NoError(t, a.Validate())
		require.Equal(t, options.Replicas, a.NumReplicas())
		require.Equal(t, product(Coordinates(options.ComputationShape)), a.NumCoresPerReplica())
		for r, row := range a.DeviceIDs() {
			for p, id := range row {
				gotR, gotP, ok := a.LookupDevice(id)
				require.True(t, ok)
				require.Equal(t, [2]int{r, p}, [2]int{gotR, gotP})
				c, err := a.Coordinates(r, p)
				require.NoError(t, err)
				same, err := topology.DeviceIDAtCoordinates(c)
				require.NoError(t, err)
				require.Equal(t, id, same)
			}
		}
		options.Replicas = most + 1
		_, err = BuildDeviceAssignment(topology, options)
		require.Error(t, err)
	}
	assert.Greater(t, built, 300)
}

// randomTopology assigns the coordinates of a random mesh to tasks in random order.
func randomTopology(t testing.TB, rng *rand.Rand) Topology {
	t.Helper()
	shape := []int{rng.IntN(4) + 1, rng.IntN(4) + 1, rng.IntN(3) + 1, rng.IntN(2) + 1}
	size := product(Coordinates(shape))
	perTask := size
	for _, n := range []int{2, 3, 4} {
		if size%n == 0 && rng.IntN(2) == 0 {
			perTask = size / n
		}
	}
	var coords [][]Coordinates
	var ids [][]int
	for i, k := range rng.Perm(size) {
		if i%perTask == 0 {
			coords, ids = append(coords, nil), append(ids, nil)
		}
		coords[i/perTask] = append(coords[i/perTask], coordinatesAt(k, Coordinates(shape)))
		ids[i/perTask] = append(ids[i/perTask], 1000+k)
	}
	if len(coords) > 1 && rng.IntN(4) == 0 { // a host is missing
		coords, ids = coords[1:], ids[1:]
	}
	topology, err := NewTopology(TopologyOptions{MeshShape: shape, DeviceCoordinates: coords, DeviceIDs: ids})
	require.NoError(t, err)
	return topology
}

func TestBuildDeviceAssignmentIsFastForLargeSlices(t *testing.T) {
	topology := logical(t, 16, 16, 16, 1)
	least := time.Hour // another process may hold up any single try
	for range 5 {
		start := time.Now()
		a, err := BuildDeviceAssignment(topology, AssignmentOptions{ComputationShape: []int{2, 2, 1, 1}, Replicas: 1024})
		require.NoError(t, err)
		require.NoError(t, a.Validate())
		least = min(least, time.Since(start))
	}
	assert.Less(t, least, time.Second, "4096 devices take about a millisecond")
}

func BenchmarkBuildDeviceAssignment4096(b *testing.B) {
	topology := logical(b, 16, 16, 16, 1)
	for name, options := range map[string]AssignmentOptions{
		"ring": {ComputationShape: []int{2, 2, 1, 1}, Replicas: 1024},
		"mesh": {ComputationShape: []int{2, 2, 1, 1}, Replicas: 1024, Order: MeshOrder},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := BuildDeviceAssignment(topology, options); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
