package spmd_test

import (
	"fmt"
	"log"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// Lower a matrix product with split weights for 2 replicas of 2 logical devices. This needs no
// plugin.
func Example() {
	t := spmd.NewTrace(spmd.Options{Replicas: 2, LogicalDevices: 2})
	g := graph.NewGraph(t, "step")
	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 4, 8))
	w := graph.Parameter(g, "w", shapes.Make(dtypes.Float32, 8, 16))
	if err := g.Compile(logical.Split(graph.MatMul(x, w), 1, 2)); err != nil {
		log.Fatal(err)
	}
	m, err := t.Module(g, spmd.Signature{
		Arguments: []spmd.Tensor{{Name: "x", PerReplica: true}, {Name: "w", Annotation: logical.SplitInto(1, 2)}},
		Results:   []spmd.Tensor{{Name: "y", PerReplica: true}},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(m.Mesh)
	for _, a := range m.Arguments {
		fmt.Println(a.Name, "global", a.GlobalDims, a.Spec, "a device", a.ShardDims)
	}
	for line := range strings.Lines(string(m.Text)) {
		if strings.Contains(line, "sharding_constraint") {
			fmt.Print(strings.TrimSpace(line))
		}
	}
	// Output:
	// replica=2,logical=2
	// x global [8 8] replica,- a device [4 8]
	// w global [8 16] -,logical a device [8 8]
	// %1 = sdy.sharding_constraint %0 <@mesh, [{}, {"logical"}]> : tensor<4x16xf32>
}
