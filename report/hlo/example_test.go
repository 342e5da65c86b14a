package hlo_test

import (
	"fmt"

	"github.com/tpustrategy/tpustrategy/internal/test/hlotest"
	"github.com/tpustrategy/tpustrategy/report/hlo"
)

// Read a program with one matrix product. A compiled step returns its program with
// pjrt.Executable.OptimizedProgram.
func ExampleParse() {
	shape := hlotest.Floats(128, 128)
	program := hlotest.Program(1, hlotest.Computation(1,
		hlotest.Instruction(1, "parameter", shape, nil),
		hlotest.Instruction(2, "dot", shape, []uint64{1, 1}, hlotest.Product()),
	))
	p, err := hlo.Parse(program, nil)
	if err != nil {
		panic(err)
	}
	for _, i := range p.Entry.Instructions {
		fmt.Printf("%s: %.0f FLOPs, %.0f bytes\n", i.Opcode, i.FLOPs, i.BytesAccessed)
	}
	// Output:
	// parameter: 0 FLOPs, 0 bytes
	// dot: 4194304 FLOPs, 196608 bytes
}
