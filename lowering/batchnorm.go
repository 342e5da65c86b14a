package lowering

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
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

// BatchNormForTraining normalizes x with its own mean and variance per feature, and returns them
// too.
func (f *Function) BatchNormForTraining(x, scale, offset compute.Value, epsilon float32, axis int) (normalized, mean, variance compute.Value, err error) {
	return f.three("BatchNormForTraining", with(x, scale, offset), func(in []*stablehlo.Value) ([]*stablehlo.Value, error) {
		axis, err := axisOf(axis, in[0].Shape().Rank())
		if err != nil {
			return nil, err
		}
		if f.unfused() {
			return f.inFloat32(in, func(in []*stablehlo.Value) ([]*stablehlo.Value, error) {
				return f.plainBatchNorm(in[0], in[1], in[2], epsilon, axis)
			})
		}
		fused := func(in []*stablehlo.Value) ([]*stablehlo.Value, error) {
			n, m, v, err := stablehlo.BatchNormTraining(in[0], in[1], in[2], epsilon, axis)
			return []*stablehlo.Value{n, m, v}, err
		}
		if f.sumsInFloat32(in[0].Shape().DType) {
			return f.inFloat32(in, fused)
		}
		return fused(in)
	})
}

// BatchNormGradient returns the gradients of BatchNormForTraining with respect to x, scale and
// offset.
func (f *Function) BatchNormGradient(x, scale, mean, variance, gradOutput compute.Value, epsilon float32, axis int) (gradX, gradScale, gradOffset compute.Value, err error) {
	return f.three("BatchNormGradient", with(x, scale, mean, variance, gradOutput), func(in []*stablehlo.Value) ([]*stablehlo.Value, error) {
		axis, err := axisOf(axis, in[0].Shape().Rank())
		if err != nil {
			return nil, err
		}
		if f.unfused() {
			return f.inFloat32(in, func(in []*stablehlo.Value) ([]*stablehlo.Value, error) {
				return f.plainBatchNormGradient(in[0], in[1], in[2], in[3], in[4], epsilon, axis)
			})
		}
		fused := func(in []*stablehlo.Value) ([]*stablehlo.Value, error) {
			a, b, c, err := stablehlo.BatchNormGradient(in[0], in[1], in[2], in[3], in[4], epsilon, axis)
			return []*stablehlo.Value{a, b, c}, err
		}
		if f.sumsInFloat32(in[0].Shape().DType) {
			return f.inFloat32(in, fused)
		}
		return fused(in)
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

// batch is a tensor whose features are along an axis, and the rest of which is normalized together.
type batch struct {
	chain
	f     *Function
	shape xshapes.Shape
	axis  int
	rest  []int
	count *stablehlo.Value // of a feature's elements
}

func (f *Function) batch(x *stablehlo.Value, axis int) *batch {
	b := &batch{chain: chain{fn: f.fn}, f: f, shape: x.Shape(), axis: axis}
	n := 1
	for d, size := range b.shape.Dimensions {
		if d != axis {
			b.rest = append(b.rest, d)
			n *= size
		}
	}
	b.count = b.do(func() (*stablehlo.Value, error) {
		return constant(f.fn, floatNumber(float64(n), 0, 0), xshapes.Make(b.shape.DType))
	})
	return b
}

// feature spreads a value for each feature over the batch.
func (b *batch) feature(v *stablehlo.Value) *stablehlo.Value { return b.broadcast(v, b.shape, b.axis) }

func (b *batch) sum(x *stablehlo.Value) *stablehlo.Value {
	return b.do(func() (*stablehlo.Value, error) {
		closure, err := b.f.combiner(combineSum, b.shape.DType)
		if err != nil {
			return nil, err
		}
		start, err := b.f.neutral(combineSum, b.shape.DType)
		if err != nil {
			return nil, err
		}
		return stablehlo.Reduce(x, start, closure, b.rest...)
	})
}

func (b *batch) mean(x *stablehlo.Value) *stablehlo.Value {
	return b.binary(stablehlo.Divide, b.sum(x), b.count)
}

// scaled is x without the mean, over the standard deviation, and the reciprocal of that.
func (b *batch) scaled(x, mean, variance *stablehlo.Value, epsilon float32) (normal, scale *stablehlo.Value) {
	small := b.do(func() (*stablehlo.Value, error) {
		return constant(b.f.fn, floatNumber(float64(epsilon), 0, 0), xshapes.Make(b.shape.DType))
	})
	scale = b.unary(stablehlo.Rsqrt, b.binary(stablehlo.Add, variance, small))
	return b.binary(stablehlo.Multiply, b.binary(stablehlo.Subtract, x, b.feature(mean)), b.feature(scale)), scale
}

// inFloat32 computes a batch normalisation of half precision in float32: its sums do not fit half
// of it.
func (f *Function) inFloat32(in []*stablehlo.Value, compute func(in []*stablehlo.Value) ([]*stablehlo.Value, error)) ([]*stablehlo.Value, error) {
	dtype := in[0].Shape().DType
	if !dtype.IsHalfPrecision() {
		return compute(in)
	}
	c := chain{fn: f.fn}
	wide := make([]*stablehlo.Value, len(in))
	for i, v := range in {
		wide[i] = c.convert(v, dtypes.Float32)
	}
	if c.err != nil {
		return nil, c.err
	}
	out, err := compute(wide)
	for i := range out {
		out[i] = c.convert(out[i], dtype)
	}
	if err == nil {
		err = c.err
	}
	return out, err
}

func (f *Function) plainBatchNorm(x, scale, offset *stablehlo.Value, epsilon float32, axis int) ([]*stablehlo.Value, error) {
	b := f.batch(x, axis)
	mean := b.mean(x)
	deviation := b.binary(stablehlo.Subtract, x, b.feature(mean))
	variance := b.mean(b.binary(stablehlo.Multiply, deviation, deviation))
	normal, _ := b.scaled(x, mean, variance, epsilon)
	out := b.binary(stablehlo.Add, b.binary(stablehlo.Multiply, normal, b.feature(scale)), b.feature(offset))
	return []*stablehlo.Value{out, mean, variance}, b.err
}

func (f *Function) plainBatchNormGradient(x, scale, mean, variance, v *stablehlo.Value, epsilon float32, axis int) ([]*stablehlo.Value, error) {
	b := f.batch(x, axis)
	normal, factor := b.scaled(x, mean, variance, epsilon)
	forOffset := b.sum(v)
	forScale := b.sum(b.binary(stablehlo.Multiply, v, normal))
	inner := b.binary(stablehlo.Subtract, v, b.feature(b.binary(stablehlo.Divide, forOffset, b.count)))
	inner = b.binary(stablehlo.Subtract, inner, b.binary(stablehlo.Multiply, normal, b.feature(b.binary(stablehlo.Divide, forScale, b.count))))
	forX := b.binary(stablehlo.Multiply, b.feature(b.binary(stablehlo.Multiply, scale, factor)), inner)
	return []*stablehlo.Value{forX, forScale, forOffset}, b.err
}

// unfused reports whether batch normalisations are written as what they consist of, which the
// partitioner of a program can split.
func (f *Function) unfused() bool { return f.builder.backend.opts.Unfused || f.builder.partitions > 1 }
