package lowering

import (
	"reflect"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// GoMLX builds the gradient of a grouped convolution as one convolution per group and concatenates
// the results. A depthwise layer with 1,024 channels has 2,048 such convolutions, and compile time
// grows with each. A concatenation of convolutions of the slices of one tensor equals one grouped
// convolution. This file replaces it.

type plainConvolution struct {
	x, kernel *stablehlo.Value
	convolution
}

// convolution contains the parameters of a convolution besides its operands.
type convolution struct {
	Axes                            compute.ConvolveAxesConfig
	Strides                         []int
	Paddings                        [][2]int
	InputDilations, KernelDilations []int
	XDimensions, KernelDimensions   []int
}

type tensorSlice struct {
	source         *stablehlo.Value
	starts, limits []int
}

// convolutionTracker records the convolutions and slices of a function by the name of the result,
// so that mergeConvolutions can find the convolutions of the slices of one tensor.
type convolutionTracker struct {
	convolutions map[string]plainConvolution
	slices       map[string]tensorSlice
}

func (o *convolutionTracker) recordConvolution(v *stablehlo.Value, c plainConvolution) {
	c.XDimensions, c.KernelDimensions = c.x.Shape().Dimensions, c.kernel.Shape().Dimensions
	o.convolutions[v.String()] = c
}

func (o *convolutionTracker) recordSlice(v, of *stablehlo.Value, starts, limits, strides []int) {
	if len(strides) > 0 && slices.Max(strides) > 1 {
		return
	}
	o.slices[v.String()] = tensorSlice{of, slices.Clone(starts), slices.Clone(limits)}
}

// slicedTensor returns the tensor that was split into the given parts. The parts must be slices
// along axis, of equal size, in order, and together cover the tensor. Otherwise slicedTensor
// returns nil.
func (o *convolutionTracker) slicedTensor(parts []*stablehlo.Value, axis int) *stablehlo.Value {
	first, ok := o.slices[parts[0].String()]
	if !ok {
		return nil
	}
	dims, at := first.source.Shape().Dimensions, 0
	for _, part := range parts {
		s, ok := o.slices[part.String()]
		if !ok || s.source != first.source {
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
	return first.source
}

// mergeConvolutions returns a grouped convolution that equals the concatenation of the values along
// axis. It returns nil if the values are not convolutions of the slices of one tensor.
func (f *Function) mergeConvolutions(axis int, in []*stablehlo.Value) *stablehlo.Value {
	first, ok := f.convolutions.convolutions[in[0].String()]
	if !ok || axis != first.Axes.OutputChannels {
		return nil
	}
	xs, kernels := make([]*stablehlo.Value, len(in)), make([]*stablehlo.Value, len(in))
	for i, v := range in {
		c, ok := f.convolutions.convolutions[v.String()]
		if !ok || !reflect.DeepEqual(c.convolution, first.convolution) {
			return nil
		}
		xs[i], kernels[i] = c.x, c.kernel
	}
	channelGroups, batchGroups := len(in), 1
	x := f.convolutions.slicedTensor(xs, first.Axes.InputChannels)
	if x == nil {
		channelGroups, batchGroups = 1, len(in)
		if x = f.convolutions.slicedTensor(xs, first.Axes.InputBatch); x == nil {
			return nil
		}
	}
	kernel := f.convolutions.slicedTensor(kernels, first.Axes.KernelOutputChannels)
	if kernel == nil {
		kernel = must(stablehlo.Concatenate(first.Axes.KernelOutputChannels, kernels...))
	}
	return f.addConvolution(x, kernel, first.convolution, channelGroups, batchGroups)
}
