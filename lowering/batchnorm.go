package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// BatchNormForInference normalizes x with the given mean and variance per feature.
func (f *Function) BatchNormForInference(x, scale, offset, mean, variance compute.Value, epsilon float32, axis int) (compute.Value, error) {
	return f.op("BatchNormForInference", with(x, scale, offset, mean, variance), func(in []*stablehlo.Value) (*stablehlo.Value, error) {
		axis, err := axisOf(axis, in[0].Shape().Rank())
		if err != nil {
			return nil, err
		}
		return stablehlo.BatchNormInference(in[0], in[1], in[2], in[3], in[4], epsilon, axis)
	})
}

// BatchNormForTraining normalizes x with its own mean and variance per feature, and returns them too.
func (f *Function) BatchNormForTraining(x, scale, offset compute.Value, epsilon float32, axis int) (normalized, mean, variance compute.Value, err error) {
	return f.three("BatchNormForTraining", with(x, scale, offset), func(in []*stablehlo.Value) ([]*stablehlo.Value, error) {
		axis, err := axisOf(axis, in[0].Shape().Rank())
		if err != nil {
			return nil, err
		}
		n, m, v, err := stablehlo.BatchNormTraining(in[0], in[1], in[2], epsilon, axis)
		return []*stablehlo.Value{n, m, v}, err
	})
}

// BatchNormGradient returns the gradients of BatchNormForTraining with respect to x, scale and offset.
func (f *Function) BatchNormGradient(x, scale, mean, variance, gradOutput compute.Value, epsilon float32, axis int) (gradX, gradScale, gradOffset compute.Value, err error) {
	return f.three("BatchNormGradient", with(x, scale, mean, variance, gradOutput), func(in []*stablehlo.Value) ([]*stablehlo.Value, error) {
		axis, err := axisOf(axis, in[0].Shape().Rank())
		if err != nil {
			return nil, err
		}
		a, b, c, err := stablehlo.BatchNormGradient(in[0], in[1], in[2], in[3], in[4], epsilon, axis)
		return []*stablehlo.Value{a, b, c}, err
	})
}

// three is ops for three results.
func (f *Function) three(name string, operands []compute.Value,
	emit func(in []*stablehlo.Value) ([]*stablehlo.Value, error)) (a, b, c compute.Value, err error) {
	out, err := f.ops(name, operands, emit)
	if err != nil {
		return nil, nil, nil, err
	}
	return out[0], out[1], out[2], nil
}
