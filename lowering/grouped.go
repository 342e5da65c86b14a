package lowering

import (
	"reflect"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// GoMLX builds the gradient of a grouped convolution as one convolution per group and concatenates
// the results. For a depthwise layer of 1,024 channels these are 2,048 convolutions, and compile
// time grows with each. A concatenation of convolutions of the slices of one tensor is itself a
// grouped convolution, with groups of channels or of the batch, and is written as one.

// plainConvolution is a convolution without groups, as passed to ConvGeneral.
type plainConvolution struct {
	x, kernel *stablehlo.Value
	convolution
}

// convolution contains the parameters of a convolution, without its operands.
type convolution struct {
	Axes                            compute.ConvolveAxesConfig
	Strides                         []int
	Paddings                        [][2]int
	InputDilations, KernelDilations []int
	XDimensions, KernelDimensions   []int
}

// tensorSlice is a slice of a tensor along one axis.
type tensorSlice struct {
	of             *stablehlo.Value
	starts, limits []int
}

// origins records how values of a function were computed, by name.
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

// whole returns the tensor whose equal slices along axis are the values, complete and in order. It
// returns nil if there is no such tensor.
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

// joined returns the grouped convolution that replaces a concatenation of convolutions along axis.
// It returns nil if the values are not such convolutions.
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
