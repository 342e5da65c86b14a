package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// BatchNormForInference normalizes x with the given mean and variance per feature.
func (f *Function) BatchNormForInference(x, scale, offset, mean, variance compute.Value, epsilon float32,
	axis int) (compute.Value, error) {
	return f.addOp("BatchNormForInference", valueList(x, scale, offset, mean, variance),
		func(in []*stablehlo.Value) *stablehlo.Value {
			return must(stablehlo.BatchNormInference(in[0], in[1], in[2], in[3], in[4], epsilon,
				normalizeAxis(axis, in[0].Shape().Rank())))
		})
}

// BatchNormForTraining normalizes x with the mean and variance of its features, and also returns
// them.
func (f *Function) BatchNormForTraining(x, scale, offset compute.Value, epsilon float32, axis int) (normalized, mean,
	variance compute.Value, err error) {
	return f.addBatchNorm("BatchNormForTraining", valueList(x, scale, offset), axis, func(in []*stablehlo.Value,
		axis int) []*stablehlo.Value {
		return f.plainBatchNorm(in[0], in[1], in[2], epsilon, axis)
	}, func(in []*stablehlo.Value, axis int) []*stablehlo.Value {
		n, m, v, err := stablehlo.BatchNormTraining(in[0], in[1], in[2], epsilon, axis)
		return must([]*stablehlo.Value{n, m, v}, err)
	})
}

// BatchNormGradient returns the gradients of BatchNormForTraining with respect to x, scale and
// offset.
func (f *Function) BatchNormGradient(x, scale, mean, variance, gradOutput compute.Value, epsilon float32,
	axis int) (gradX, gradScale, gradOffset compute.Value, err error) {
	return f.addBatchNorm("BatchNormGradient", valueList(x, scale, mean, variance, gradOutput), axis,
		func(in []*stablehlo.Value, axis int) []*stablehlo.Value {
			return f.plainBatchNormGradient(in[0], in[1], in[2], in[3], in[4], epsilon, axis)
		}, func(in []*stablehlo.Value, axis int) []*stablehlo.Value {
			a, b, c, err := stablehlo.BatchNormGradient(in[0], in[1], in[2], in[3], in[4], epsilon, axis)
			return must([]*stablehlo.Value{a, b, c}, err)
		})
}

// addBatchNorm adds a batch normalization with three results. It calls plain, which adds reductions
// and elementwise ops, if isUnfused returns true, and otherwise fused, which adds one StableHLO op.
// Half-precision operands are converted to float32 for plain, and for fused if a wider accumulation
// dtype is set.
func (f *Function) addBatchNorm(name string, operands []compute.Value, axis int,
	plain, fused func(in []*stablehlo.Value, axis int) []*stablehlo.Value) (a, b, c compute.Value, err error) {
	out, err := f.addOps(name, operands, func(in []*stablehlo.Value) []*stablehlo.Value {
		axis, dtype, write := normalizeAxis(axis, in[0].Shape().Rank()), in[0].Shape().DType, fused
		if f.isUnfused() {
			write = plain
		}
		if !dtype.IsHalfPrecision() || !f.isUnfused() && !f.hasWiderAccumulator(dtype) {
			return write(in, axis)
		}
		wide := make([]*stablehlo.Value, len(in))
		for i, v := range in {
			wide[i] = f.opBuilder().convert(v, dtypes.Float32)
		}
		out := write(wide, axis)
		for i, v := range out {
			out[i] = f.opBuilder().convert(v, dtype)
		}
		return out
	})
	if err != nil {
		return nil, nil, nil, err
	}
	return out[0], out[1], out[2], nil
}

// batchNormalizer adds the ops of a batch normalization: it normalizes a tensor over all axes
// except the feature axis.
type batchNormalizer struct {
	opBuilder
	f         *Function
	shape     xshapes.Shape
	axis      int
	otherAxes []int
	count     *stablehlo.Value // elements per feature
}

func (f *Function) newBatchNormalizer(x *stablehlo.Value, axis int) *batchNormalizer {
	b := &batchNormalizer{opBuilder: f.opBuilder(), f: f, shape: x.Shape(), axis: axis}
	n := 1
	for d, size := range b.shape.Dimensions {
		if d != axis {
			b.otherAxes = append(b.otherAxes, d)
			n *= size
		}
	}
	b.count = b.constant(b.shape.DType, floatNumber(float64(n), 0, 0))
	return b
}

// perFeature broadcasts a vector with one value per feature to the tensor's shape.
func (b *batchNormalizer) perFeature(v *stablehlo.Value) *stablehlo.Value {
	return b.broadcast(v, b.shape, b.axis)
}

func (b *batchNormalizer) sumPerFeature(x *stablehlo.Value) *stablehlo.Value {
	return b.f.reduceOp(combineSum, x, b.otherAxes)
}

func (b *batchNormalizer) meanPerFeature(x *stablehlo.Value) *stablehlo.Value {
	return b.binary(stablehlo.Divide, b.sumPerFeature(x), b.count)
}

// normalize returns (x - mean) / sqrt(variance + epsilon), and 1 / sqrt(variance + epsilon) per
// feature.
func (b *batchNormalizer) normalize(x, mean, variance *stablehlo.Value, epsilon float32) (normal,
	scale *stablehlo.Value) {
	small := b.constant(b.shape.DType, floatNumber(float64(epsilon), 0, 0))
	scale = must(stablehlo.Rsqrt(b.binary(stablehlo.Add, variance, small)))
	return b.binary(stablehlo.Multiply, b.binary(stablehlo.Subtract, x, b.perFeature(mean)), b.perFeature(scale)), scale
}

func (f *Function) plainBatchNorm(x, scale, offset *stablehlo.Value, epsilon float32, axis int) []*stablehlo.Value {
	b := f.newBatchNormalizer(x, axis)
	mean := b.meanPerFeature(x)
	deviation := b.binary(stablehlo.Subtract, x, b.perFeature(mean))
	variance := b.meanPerFeature(b.binary(stablehlo.Multiply, deviation, deviation))
	normal, _ := b.normalize(x, mean, variance, epsilon)
	out := b.binary(stablehlo.Add, b.binary(stablehlo.Multiply, normal, b.perFeature(scale)), b.perFeature(offset))
	return []*stablehlo.Value{out, mean, variance}
}

func (f *Function) plainBatchNormGradient(x, scale, mean, variance, v *stablehlo.Value, epsilon float32,
	axis int) []*stablehlo.Value {
	b := f.newBatchNormalizer(x, axis)
	normal, factor := b.normalize(x, mean, variance, epsilon)
	forOffset := b.sumPerFeature(v)
	forScale := b.sumPerFeature(b.binary(stablehlo.Multiply, v, normal))
	inner := b.binary(stablehlo.Subtract, v, b.perFeature(b.binary(stablehlo.Divide, forOffset, b.count)))
	inner = b.binary(stablehlo.Subtract, inner, b.binary(stablehlo.Multiply, normal,
		b.perFeature(b.binary(stablehlo.Divide, forScale, b.count))))
	forX := b.binary(stablehlo.Multiply, b.perFeature(b.binary(stablehlo.Multiply, scale, factor)), inner)
	return []*stablehlo.Value{forX, forScale, forOffset}
}

// isUnfused reports whether batch normalizations are lowered to reductions and elementwise ops,
// which XLA's partitioner can split.
func (f *Function) isUnfused() bool {
	return f.builder.backend.opts.Unfused || f.builder.partitions > 1
}
