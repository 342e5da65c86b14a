package lowering

import (
	"errors"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// OptimizationBarrier returns its operands unchanged. The compiler does not move ops across it.
func (f *Function) OptimizationBarrier(operands ...compute.Value) ([]compute.Value, error) {
	return f.addOps("OptimizationBarrier", operands, func(in []*stablehlo.Value) []*stablehlo.Value {
		switch {
		case len(in) == 0:
			panic(errors.New("at least one operand is needed"))
		case len(in) == 1 && f.builder.backend.opts.Target == TargetCPU:
			return in // see TargetCPU
		}
		return must(stablehlo.OptimizationBarrier(in...))
	})
}

// SchedulingBarrier returns x unchanged. Ops that read the result run only after the dependencies
// have been computed.
func (f *Function) SchedulingBarrier(x compute.Value, dependencies ...compute.Value) (compute.Value, error) {
	operands := append(valueList(x), dependencies...)
	return f.addOp("SchedulingBarrier", operands, func(in []*stablehlo.Value) *stablehlo.Value {
		if len(in) == 1 {
			return in[0]
		}
		return must(stablehlo.OptimizationBarrier(in...))[0]
	})
}
