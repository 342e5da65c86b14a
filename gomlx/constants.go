package gomlx

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/lowering"
)

// A large constant of a graph becomes a parameter of its program, for the reasons in package
// strategy. An Executable adds the constants to the inputs of each execution. Each device has a
// copy of a constant, which is transferred once, at the first execution. The text of a program does
// not depend on the elements of its large constants. The names of constants contain a hash of the
// elements, which the hosts compare.

// newConstant implements [lowering.Options.Constant]. The value is a Buffer.
func (b *Backend) newConstant(shape shapes.Shape, elements []byte) (constant lowering.Constant, err error) {
	hash := lowering.HashConstant(shape, elements)
	constant.Name = fmt.Sprintf("constant_%x", hash[:16])
	constant.Value, err = b.newBuffer(&bufferState{backend: b, shape: shape.Clone(), host: bytes.Clone(elements)})
	return constant, err
}

// numInputs returns the number of inputs of a program. The remaining parameters, at the end of the
// list, are constants.
func numInputs(p *lowering.Program) int { return len(p.ParameterNames) - len(p.Constants) }

// withConstants adds the program's constants, which are not donated, to the inputs of each device.
// If the number of inputs is wrong, it returns the arguments unchanged.
func (e *Executable) withConstants(inputs []compute.Buffer, donate []bool) ([]compute.Buffer, []bool) {
	p := e.state.program
	given, devices := numInputs(p), p.Replicas*p.Partitions
	if len(p.Constants) == 0 || len(inputs) != given*devices || len(donate) != 0 && len(donate) != len(inputs) {
		return inputs, donate
	}
	all := make([]compute.Buffer, 0, len(p.ParameterNames)*devices)
	donated := make([]bool, 0, cap(all))
	for d := range devices {
		all = append(all, inputs[d*given:(d+1)*given]...)
		if len(donate) > 0 {
			donated = append(donated, donate[d*given:(d+1)*given]...)
		} else {
			donated = append(donated, make([]bool, given)...)
		}
		for _, c := range p.Constants {
			all, donated = append(all, c.Value.(*Buffer)), append(donated, false)
		}
	}
	return all, donated
}

// constantNames returns the names of the constants of a program, which contain their hashes.
func constantNames(p *lowering.Program) []string {
	return slices.Clone(p.ParameterNames[numInputs(p):])
}
