package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// ConvGeneral convolves over any number of spatial axes. The default stride and dilation is 1, and
// the default padding is 0. Group counts below 1 mean one group.
func (f *Function) ConvGeneral(x, kernel compute.Value, axes compute.ConvolveAxesConfig,
	strides []int, paddings [][2]int, inputDilations, kernelDilations []int,
	channelGroups, batchGroups int) (compute.Value, error) {
	return f.addOp("ConvGeneral", valueList(x, kernel), func(in []*stablehlo.Value) *stablehlo.Value {
		spatial := in[0].Shape().Rank() - 2
		if spatial < 0 {
			panic(fmt.Errorf("the input needs a batch and a channel axis"))
		}
		if kernelRank := in[1].Shape().Rank(); kernelRank != spatial+2 {
			panic(fmt.Errorf("the kernel has rank %d, the input %d", kernelRank, spatial+2))
		}
		checkPerAxis("strides", strides, spatial)
		checkPerAxis("input dilations", inputDilations, spatial)
		checkPerAxis("kernel dilations", kernelDilations, spatial)
		checkPerAxis("paddings", paddings, spatial)
		if len(paddings) == 0 {
			paddings = make([][2]int, spatial)
		}
		c := convolution{Axes: axes, Strides: defaultToOnes(strides, spatial), Paddings: paddings,
			InputDilations: defaultToOnes(inputDilations, spatial), KernelDilations: defaultToOnes(kernelDilations, spatial)}
		v := f.addConvolution(in[0], in[1], c, max(channelGroups, 1), max(batchGroups, 1))
		if channelGroups <= 1 && batchGroups <= 1 {
			f.convolutions.recordConvolution(v, plainConvolution{x: in[0], kernel: in[1], convolution: c})
		}
		return v
	})
}

func (f *Function) addConvolution(x, kernel *stablehlo.Value, c convolution, channelGroups,
	batchGroups int) *stablehlo.Value {
	precision := f.builder.backend.opts.Precision.stableHLO()
	return must(stablehlo.Convolution(x, kernel, c.Strides, c.Paddings, c.InputDilations, c.KernelDilations,
		c.Axes.InputBatch, c.Axes.InputChannels, c.Axes.InputSpatial,
		c.Axes.KernelInputChannels, c.Axes.KernelOutputChannels, c.Axes.KernelSpatial,
		c.Axes.OutputBatch, c.Axes.OutputChannels, c.Axes.OutputSpatial,
		channelGroups, batchGroups, precision, precision))
}

func defaultToOnes(values []int, n int) []int {
	if len(values) > 0 {
		return values
	}
	return slices.Repeat([]int{1}, n)
}
