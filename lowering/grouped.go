package lowering

import (
	"reflect"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// GoMLX writes the gradient of a convolution in groups as a convolution for each group,
// joined: 2,048 of them for a layer of 1,024 channels that has one each, and a compiler
// takes its time for every one. Joined convolutions of the parts of one tensor are
// themselves a convolution in groups, of its channels or of its batch.

// plainConvolution is a convolution without groups, as ConvGeneral was asked for it.
type plainConvolution struct {
	x, kernel *stablehlo.Value
	convolution
}

// convolution is all of it but the operands.
type convolution struct {
	Axes                            compute.ConvolveAxesConfig
	Strides                         []int
	Paddings                        [][2]int
	InputDilations, KernelDilations []int
	XDimensions, KernelDimensions   []int
}

// tensorSlice is a part of a tensor.
type tensorSlice struct {
	of             *stablehlo.Value
	starts, limits []int
}

// origins say how values of a function came about, by their names.
type origins struct {
	convolutions map[string]plainConvolution
	slices       map[string]tensorSlice
}

func (o *origins) convolved(v *stablehlo.Value, c plainConvolution) {
	c.XDimensions, c.KernelDimensions = c.x.Shape().Dimensions, c.kernel.Shape().Dimensions
	o.convolutions[v.String()] = c
}

func (o *origins) sliced(v, of *stablehlo.Value, starts, limits, strides []int) {
	if len(strides) > 0 && slices.Max(strides) > 1 {
		return
	}
	o.slices[v.String()] = tensorSlice{of, slices.Clone(starts), slices.Clone(limits)}
}

// whole is the tensor whose equal parts along an axis the values are, all of them in
// order; nil if there is none.
func (o *origins) whole(parts []*stablehlo.Value, axis int) *stablehlo.Value {
	first, ok := o.slices[parts[0].String()]
	if !ok {
		return nil
	}
	dims, at := first.of.Shape().Dimensions, 0
	for _, part := range parts {
		s, ok := o.slices[part.String()]
		if !ok || s.of != first.of {
			return nil
		}
		for i, dim := range dims {
			switch {
			case i == axis && s.starts[i] == at && s.limits[i]-s.starts[i] == first.limits[i]-first.starts[i]:
				at = s.limits[i]
			case i == axis || s.starts[i] != 0 || s.limits[i] != dim:
				return nil
			}
		}
	}
	if at != dims[axis] {
		return nil
	}
	return first.of
}

// joined is the convolution in groups that convolutions which are joined along an axis
// are; nil if they are none.
func (f *Function) joined(axis int, in []*stablehlo.Value) *stablehlo.Value {
	first, ok := f.origins.convolutions[in[0].String()]
	if !ok || axis != first.Axes.OutputChannels {
		return nil
	}
	xs, kernels := make([]*stablehlo.Value, len(in)), make([]*stablehlo.Value, len(in))
	for i, v := range in {
		c, ok := f.origins.convolutions[v.String()]
		if !ok || !reflect.DeepEqual(c.convolution, first.convolution) {
			return nil
		}
		xs[i], kernels[i] = c.x, c.kernel
	}
	channelGroups, batchGroups := len(in), 1
	x := f.origins.whole(xs, first.Axes.InputChannels)
	if x == nil {
		channelGroups, batchGroups = 1, len(in)
		if x = f.origins.whole(xs, first.Axes.InputBatch); x == nil {
			return nil
		}
	}
	kernel := f.origins.whole(kernels, first.Axes.KernelOutputChannels)
	if kernel == nil {
		kernel = must(stablehlo.Concatenate(first.Axes.KernelOutputChannels, kernels...))
	}
	return f.convolve(x, kernel, first.convolution, channelGroups, batchGroups)
}
