package gomlx_test

import (
	"fmt"
	"log"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	_ "github.com/tpustrategy/tpustrategy/gomlx"
)

// A program that creates a backend with GoMLX receives one over all devices.
func Example() {
	b, err := compute.NewWithConfig("tpustrategy:devices=8,logical=2") // or GOMLX_BACKEND and compute.New
	if err != nil {
		log.Fatal(err)
	}
	defer b.Finalize()
	sum, err := graph.CallOnce(b, func(x *graph.Node) *graph.Node { return graph.ReduceAllSum(x) }, []float32{1, 2, 3, 4})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.Description())
	fmt.Println(sum.Value())
	// Output:
	// tpustrategy: cpu, 8 device(s) as replica=4,logical=2
	// 10
}
