package cost_test

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/internal/test/hlotest"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report/cost"
	"github.com/tpustrategy/tpustrategy/report/hlo"
)

// Predict the time of a matrix product on one chip. A compiled step returns its program with
// pjrt.Executable.OptimizedProgram.
func ExamplePredict() {
	shape := hlotest.Floats(8192, 8192)
	p, err := hlo.Parse(hlotest.Program(1, hlotest.Computation(1,
		hlotest.Instruction(1, "parameter", shape, nil),
		hlotest.Instruction(2, "dot", shape, []uint64{1, 1}, hlotest.Product()),
	)), nil)
	if err != nil {
		panic(err)
	}
	e, err := cost.Predict(p, "v5e:1x1")
	if err != nil {
		panic(err)
	}
	fmt.Println("products:", units.Seconds(e.Prediction.Products))
	// Output: products: 6.05 ms
}
