package lowering

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/stablehlo"
)

// ConvGeneral convolves over any number of spatial axes. The default of strides and dilations is 1,
// the default of paddings is 0, and group counts below 1 are 1.
func (f *Function) ConvGeneral(x, kernel compute.Value, axes compute.ConvolveAxesConfig,
	strides []int, paddings [][2]int, inputDilations, kernelDilations []int,
	channelGroups, batchGroups int) (compute.Value, error) {
	return f.op("ConvGeneral", with(x, kernel), func(in []*stablehlo.Value) *stablehlo.Value {
		spatial := in[0].Shape().Rank() - 2
		if spatial < 0 {
			panic(fmt.Errorf("the input needs a batch and a channel axis"))
		}
		if kernelRank := in[1].Shape().Rank(); kernelRank != spatial+2 {
			panic(fmt.Errorf("the kernel has rank %d, the input %d", kernelRank, spatial+2))
		}
		perAxis("strides", strides, spatial)
		perAxis("input dilations", inputDilations, spatial)
		perAxis("kernel dilations", kernelDilations, spatial)
		perAxis("paddings", paddings, spatial)
		if len(paddings) == 0 {
			paddings = make([][2]int, spatial)
		}
		c := convolution{Axes: axes, Strides: orOnes(strides, spatial), Paddings: paddings,
			InputDilations: orOnes(inputDilations, spatial), KernelDilations: orOnes(kernelDilations, spatial)}
		v := f.convolve(in[0], in[1], c, max(channelGroups, 1), max(batchGroups, 1))
		if channelGroups <= 1 && batchGroups <= 1 {
			f.origins.convolved(v, plainConvolution{x: in[0], kernel: in[1], convolution: c})
		}
		return v
	})
}

func (f *Function) convolve(x, kernel *stablehlo.Value, c convolution, channelGroups, batchGroups int) *stablehlo.Value {
	precision := f.builder.backend.opts.Precision.stableHLO()
	return must(stablehlo.Convolution(x, kernel, c.Strides, c.Paddings, c.InputDilations, c.KernelDilations,
		c.Axes.InputBatch, c.Axes.InputChannels, c.Axes.InputSpatial,
		c.Axes.KernelInputChannels, c.Axes.KernelOutputChannels, c.Axes.KernelSpatial,
		c.Axes.OutputBatch, c.Axes.OutputChannels, c.Axes.OutputSpatial,
		channelGroups, batchGroups, precision, precision))
}

// orOnes returns values, or n ones if there are none.
func orOnes(values []int, n int) []int {
	if len(values) > 0 {
		return values
	}
	ones := make([]int, n)
	for i := range ones {
		ones[i] = 1
	}
	return ones
}
