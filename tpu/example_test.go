package tpu_test

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/tpu"
)

func ExampleBuildDeviceAssignment() {
	slice, err := tpu.ParseAccelerator("v3-8")
	if err != nil {
		panic(err)
	}
	topology, err := slice.Topology()
	if err != nil {
		panic(err)
	}
	assignment, err := tpu.BuildDeviceAssignment(topology, tpu.AssignmentOptions{
		ComputationShape: []int{1, 1, 1, 2},
		Replicas:         4,
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(assignment)
	fmt.Println("device ids by replica:", assignment.DeviceIDs())
	// Output:
	// DeviceAssignment(4 replicas of 2 cores)
	// device ids by replica: [[0 1] [2 3] [6 7] [4 5]]
}

func ExampleParseAccelerator() {
	for _, text := range []string{"v5litepod-16", "v4-8", "v5p-128", "v5p-384"} {
		a, err := tpu.ParseAccelerator(text)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s: %v, %d chips, %d devices, %d hosts\n", text, a, a.Chips(), a.Devices(), a.Hosts())
	}
	_, err := tpu.ParseAccelerator("v4-12")
	fmt.Println(err)
	// Output:
	// v5litepod-16: v5e:4x4, 16 chips, 16 devices, 4 hosts
	// v4-8: v4:2x2x1, 4 chips, 4 devices, 1 hosts
	// v5p-128: v5p:4x4x4, 64 chips, 64 devices, 16 hosts
	// v5p-384: v5p:4x4x12, 192 chips, 192 devices, 48 hosts
	// tpu: accelerator "v4-12": 6 chips have no default shape; the nearest are v4-8 (v4:2x2x1) and v4-16 (v4:2x2x2)
}

func ExampleLogicalTopology() {
	topology, err := tpu.LogicalTopology(tpu.LogicalOptions{Devices: 8})
	if err != nil {
		panic(err)
	}
	fmt.Println(topology)
	id, err := topology.DeviceIDAtCoordinates(tpu.Coordinates{3, 0, 0, 1})
	fmt.Println(id, err)
	// Output:
	// Topology(logical, mesh 4x1x1x2, 1 tasks of 8 devices)
	// 7 <nil>
}

// The logical cores of each replica are on one of two slices with 2x2 chips.
func ExampleAssignmentOptions_bySlice() {
	topology, err := tpu.LogicalTopology(tpu.LogicalOptions{MeshShape: []int{4, 2, 1, 1}, Slices: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	options := tpu.AssignmentOptions{ComputationShape: []int{2, 1, 1, 1}, BySlice: true}
	if options.Replicas, err = options.MaxReplicas(topology); err != nil {
		fmt.Println(err)
		return
	}
	assignment, err := tpu.BuildDeviceAssignment(topology, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	for r, row := range assignment.CoreAssignment() {
		fmt.Println("replica", r, "slice", topology.SliceOf(row[0]), row)
	}
	// Output:
	// replica 0 slice 0 [(0,0,0,0) (1,0,0,0)]
	// replica 1 slice 0 [(0,1,0,0) (1,1,0,0)]
	// replica 2 slice 1 [(2,0,0,0) (3,0,0,0)]
	// replica 3 slice 1 [(2,1,0,0) (3,1,0,0)]
}
