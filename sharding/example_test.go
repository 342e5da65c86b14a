package sharding_test

import (
	"fmt"
	"os"

	"github.com/tpustrategy/tpustrategy/sharding"
)

func exampleMesh() sharding.Mesh {
	mesh, err := sharding.NewMesh(sharding.Axis{Name: "replica", Size: 2}, sharding.Axis{Name: "logical", Size: 4})
	if err != nil {
		panic(err)
	}
	return mesh
}

func ExampleP() {
	mesh := exampleMesh()
	spec := sharding.P("replica", "logical")
	fmt.Println(mesh, spec)
	fmt.Println(mesh.ShardyText("mesh"))
	fmt.Println(spec.ShardyText("mesh"))
	ranges, err := sharding.IndexRanges(mesh, spec, []int{8, 128}, 6)
	fmt.Println("device 6 holds", ranges, err)
	// Output:
	// replica=2,logical=4 replica,logical
	// sdy.mesh @mesh = <["replica"=2, "logical"=4]>
	// #sdy.sharding<@mesh, [{"replica"}, {"logical"}]>
	// device 6 holds [4:8 64:96] <nil>
}

func ExampleSpec_Validate() {
	err := sharding.P("logical", "model").Validate(exampleMesh(), []int{6, 10})
	for _, problem := range sharding.SpecErrors(err) {
		fmt.Println(problem.Problem, "in dimension", problem.Dim)
	}
	fmt.Println(err)
	// Output:
	// unknown axis in dimension 1
	// indivisible in dimension 0
	// sharding: dimension 1: the mesh has no axis "model"; the axes are replica=2,logical=4
	// sharding: dimension 0: size 6 is not divisible by 4 (axes logical); pad the dimension to 8, or do not split it (-)
}

func ExampleSpec_OpSharding() {
	mesh := exampleMesh()
	op, err := sharding.P("logical", nil).OpSharding(mesh)
	if err != nil {
		panic(err)
	}
	fmt.Println(op)
	fmt.Println(op.WithDeviceList())
	back, err := sharding.SpecOf(mesh, op, 2)
	fmt.Println(back, err)
	// Output:
	// {devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}
	// {devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}
	// logical,- <nil>
}

func ExampleSplitToLogicalDevices() {
	op, err := sharding.SplitToLogicalDevices([]int{4, 6}, []int{2, 1}, 2)
	fmt.Println(op, err)
	_, err = sharding.SplitToLogicalDevices([]int{5, 6}, []int{2, 1}, 2)
	fmt.Println(err)
	// Output:
	// {devices=[2,1]0,1} <nil>
	// sharding: dimension 0: size 5 is not divisible by 2 (axes partitions); pad the dimension, or split another
}

func ExampleVisualize() {
	err := sharding.Visualize(os.Stdout, exampleMesh(), sharding.P(nil, "logical"), []int{8, 128},
		sharding.VisualizeOptions{})
	if err != nil {
		panic(err)
	}
	// Output:
	// -,logical of [8 128] on replica=2,logical=4, dimension 0 down, dimension 1 across
	//       0:32   32:64   64:96   96:128
	//     +------+-------+-------+--------+
	// 0:8 | 0,4  | 1,5   | 2,6   | 3,7    |
	//     +------+-------+-------+--------+
}
