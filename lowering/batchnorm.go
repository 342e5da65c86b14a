package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// BatchNormForInference normalizes x with the given mean and variance per feature.
func (f *Function) BatchNormForInference(x, scale, offset, mean, variance compute.Value, epsilon float32, axis int) (compute.Value, error) {
	return f.op("BatchNormForInference", with(x, scale, offset, mean, variance), func(in []*stablehlo.Value) *stablehlo.Value {
		return must(stablehlo.BatchNormInference(in[0], in[1], in[2], in[3], in[4], epsilon, axisOf(axis, in[0].Shape().Rank())))
	})
}

// BatchNormForTraining normalizes x with its own mean and variance per feature, and also returns
// this mean and variance.
func (f *Function) BatchNormForTraining(x, scale, offset compute.Value, epsilon float32, axis int) (normalized, mean, variance compute.Value, err error) {
	return f.batchNorm("BatchNormForTraining", with(x, scale, offset), axis, func(in []*stablehlo.Value, axis int) []*stablehlo.Value {
		return f.plainBatchNorm(in[0], in[1], in[2], epsilon, axis)
	}, func(in []*stablehlo.Value, axis int) []*stablehlo.Value {
		n, m, v, err := stablehlo.BatchNormTraining(in[0], in[1], in[2], epsilon, axis)
		return must([]*stablehlo.Value{n, m, v}, err)
	})
}

// BatchNormGradient returns the gradients of BatchNormForTraining with respect to x, scale and
// offset.
func (f *Function) BatchNormGradient(x, scale, mean, variance, gradOutput compute.Value, epsilon float32, axis int) (gradX, gradScale, gradOffset compute.Value, err error) {
	return f.batchNorm("BatchNormGradient", with(x, scale, mean, variance, gradOutput), axis, func(in []*stablehlo.Value, axis int) []*stablehlo.Value {
		return f.plainBatchNormGradient(in[0], in[1], in[2], in[3], in[4], epsilon, axis)
	}, func(in []*stablehlo.Value, axis int) []*stablehlo.Value {
		a, b, c, err := stablehlo.BatchNormGradient(in[0], in[1], in[2], in[3], in[4], epsilon, axis)
		return must([]*stablehlo.Value{a, b, c}, err)
	})
}

// batchNorm adds a batch normalization op with three results, as the StableHLO op or as the ops it
// consists of. A half-precision operand is computed in float32 where the sums would overflow half
// precision.
func (f *Function) batchNorm(name string, operands []compute.Value, axis int,
	plain, fused func(in []*stablehlo.Value, axis int) []*stablehlo.Value) (a, b, c compute.Value, err error) {
	out, err := f.ops(name, operands, func(in []*stablehlo.Value) []*stablehlo.Value {
		axis, dtype, write := axisOf(axis, in[0].Shape().Rank()), in[0].Shape().DType, fused
		if f.unfused() {
			write = plain
		}
		if !dtype.IsHalfPrecision() || !f.unfused() && !f.sumsInFloat32(dtype) {
			return write(in, axis)
		}
		wide := make([]*stablehlo.Value, len(in))
		for i, v := range in {
			wide[i] = f.chain().convert(v, dtypes.Float32)
		}
		out := write(wide, axis)
		for i, v := range out {
			out[i] = f.chain().convert(v, dtype)
		}
		return out
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return out[0], out[1], out[2], nil
}

// batch is a tensor with a feature axis. All other axes are normalized together.
type batch struct {
	chain
	f     *Function
	shape xshapes.Shape
	axis  int
	rest  []int
	count *stablehlo.Value // elements per feature
}

func (f *Function) batch(x *stablehlo.Value, axis int) *batch {
	b := &batch{chain: f.chain(), f: f, shape: x.Shape(), axis: axis}
	n := 1
	for d, size := range b.shape.Dimensions {
		if d != axis {
			b.rest = append(b.rest, d)
			n *= size
		}
	}
	b.count = b.number(b.shape.DType, floatNumber(float64(n), 0, 0))
	return b
}

// feature broadcasts a vector with one value per feature to the shape of the batch.
func (b *batch) feature(v *stablehlo.Value) *stablehlo.Value { return b.broadcast(v, b.shape, b.axis) }

func (b *batch) sum(x *stablehlo.Value) *stablehlo.Value { return b.f.reduced(combineSum, x, b.rest) }

func (b *batch) mean(x *stablehlo.Value) *stablehlo.Value {
	return b.binary(stablehlo.Divide, b.sum(x), b.count)
}

// scaled returns (x - mean) / standard deviation, and the reciprocal of the standard deviation.
func (b *batch) scaled(x, mean, variance *stablehlo.Value, epsilon float32) (normal, scale *stablehlo.Value) {
	small := b.number(b.shape.DType, floatNumber(float64(epsilon), 0, 0))
	scale = must(stablehlo.Rsqrt(b.binary(stablehlo.Add, variance, small)))
	return b.binary(stablehlo.Multiply, b.binary(stablehlo.Subtract, x, b.feature(mean)), b.feature(scale)), scale
}

func (f *Function) plainBatchNorm(x, scale, offset *stablehlo.Value, epsilon float32, axis int) []*stablehlo.Value {
	b := f.batch(x, axis)
	mean := b.mean(x)
	deviation := b.binary(stablehlo.Subtract, x, b.feature(mean))
	variance := b.mean(b.binary(stablehlo.Multiply, deviation, deviation))
	normal, _ := b.scaled(x, mean, variance, epsilon)
	out := b.binary(stablehlo.Add, b.binary(stablehlo.Multiply, normal, b.feature(scale)), b.feature(offset))
	return []*stablehlo.Value{out, mean, variance}
}

func (f *Function) plainBatchNormGradient(x, scale, mean, variance, v *stablehlo.Value, epsilon float32, axis int) []*stablehlo.Value {
	b := f.batch(x, axis)
	normal, factor := b.scaled(x, mean, variance, epsilon)
	forOffset := b.sum(v)
	forScale := b.sum(b.binary(stablehlo.Multiply, v, normal))
	inner := b.binary(stablehlo.Subtract, v, b.feature(b.binary(stablehlo.Divide, forOffset, b.count)))
	inner = b.binary(stablehlo.Subtract, inner, b.binary(stablehlo.Multiply, normal, b.feature(b.binary(stablehlo.Divide, forScale, b.count))))
	forX := b.binary(stablehlo.Multiply, b.feature(b.binary(stablehlo.Multiply, scale, factor)), inner)
	return []*stablehlo.Value{forX, forScale, forOffset}
}

// unfused reports whether batch normalizations are written as the ops they consist of, which the
// partitioner can split.
func (f *Function) unfused() bool { return f.builder.backend.opts.Unfused || f.builder.partitions > 1 }
