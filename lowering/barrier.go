package lowering

import (
	"errors"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// OptimizationBarrier returns its operands unchanged; the compiler moves nothing across it.
func (f *Function) OptimizationBarrier(operands ...compute.Value) ([]compute.Value, error) {
	return f.ops("OptimizationBarrier", operands, func(in []*stablehlo.Value) ([]*stablehlo.Value, error) {
		switch {
		case len(in) == 0:
			return nil, errors.New("at least one operand is needed")
		case len(in) == 1 && f.builder.backend.opts.Target == TargetCPU:
			return in, nil // see TargetCPU
		}
		return stablehlo.OptimizationBarrier(in...)
	})
}

// SchedulingBarrier returns x, available only once all dependencies are.
func (f *Function) SchedulingBarrier(x compute.Value, dependencies ...compute.Value) (compute.Value, error) {
	return f.op("SchedulingBarrier", append(with(x), dependencies...), func(in []*stablehlo.Value) (*stablehlo.Value, error) {
		if len(in) == 1 {
			return in[0], nil
		}
		out, err := stablehlo.OptimizationBarrier(in...)
		if err != nil {
			return nil, err
		}
		return out[0], nil
	})
}
