package lowering_test

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// Lower a GoMLX graph to StableHLO text without a device.
func Example() {
	g := graph.NewGraph(lowering.New(lowering.Options{}), "double")
	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2))
	if err := g.Compile(graph.Add(x, x)); err != nil {
		panic(err)
	}
	text, err := g.Executable().(*lowering.Executable).Program().Text()
	if err != nil {
		panic(err)
	}
	fmt.Print(string(text))
	// Output:
	// module @double {
	//   func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
	//     %0 = "stablehlo.add"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
	//     "stablehlo.return"(%0) : (tensor<2xf32>) -> ()
	//   }
	// }
}

// Options.Identity lets a node of the graph be any StableHLO op.
func ExampleOptions_identity() {
	backend := lowering.New(lowering.Options{
		Identity: func(_ *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
			return stablehlo.Cbrt(x) // an op GoMLX does not have
		},
	})
	g := graph.NewGraph(backend, "cbrt")
	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2))
	y := graph.IdentityWithCustomGradient(x, func(_, v *graph.Node) *graph.Node { return v })
	if err := g.Compile(y); err != nil {
		panic(err)
	}
	p := g.Executable().(*lowering.Executable).Program()
	fmt.Println(p.ParameterNames, p.Parameters, p.Outputs)
	// Output:
	// [x] [(Float32)[2]] [(Float32)[2]]
}
