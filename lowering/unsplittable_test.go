package lowering_test

import (
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

func TestWalkedDimensionsOfConvolutions(t *testing.T) {
	axes := compute.ConvolveAxesConfig{InputBatch: 0, InputSpatial: []int{1, 2}, InputChannels: 3,
		KernelSpatial: []int{0, 1}, KernelInputChannels: 2, KernelOutputChannels: 3,
		OutputBatch: 0, OutputSpatial: []int{1, 2}, OutputChannels: 3}
	const channels = 4
	for name, c := range map[string]struct {
		kernel, strides       []int
		paddings              [][2]int
		input, dilations      []int
		channelGroups, groups int
		spatial               []int // the spatial dimensions, counted from 0
	}{
		"one element":              {kernel: []int{1, 1}},
		"one element, padded":      {kernel: []int{1, 1}, paddings: [][2]int{{1, 0}, {0, 0}}, spatial: []int{0}},
		"one element, stride":      {kernel: []int{1, 1}, strides: []int{1, 2}, spatial: []int{1}},
		"one element, dilated":     {kernel: []int{1, 1}, input: []int{2, 1}, spatial: []int{0}},
		"rows":                     {kernel: []int{3, 1}, spatial: []int{0}},
		"columns":                  {kernel: []int{1, 3}, spatial: []int{1}},
		"both":                     {kernel: []int{3, 3}, spatial: []int{0, 1}},
		"all rows":                 {kernel: []int{8, 3}, spatial: []int{1}},
		"all rows, padded":         {kernel: []int{8, 1}, paddings: [][2]int{{0, 1}, {0, 0}}, spatial: []int{0}},
		"every second row":         {kernel: []int{4, 1}, dilations: []int{2, 1}, spatial: []int{0}},
		"all rows, groups":         {kernel: []int{8, 1}, channelGroups: 2, spatial: []int{0}},
		"groups of channels":       {kernel: []int{1, 1}, channelGroups: 2},
		"groups of the batch":      {kernel: []int{1, 1}, groups: 2},
		"groups of channels, rows": {kernel: []int{3, 1}, channelGroups: 2, spatial: []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			f := lowering.New(lowering.Options{}).Builder("walked").Main()
			x := must(t)(f.Parameter("x", shapes.Make(dtypes.Float32, 2, 8, 8, channels), nil))
			kernel := append(slices.Clone(c.kernel), channels/max(c.channelGroups, 1), channels)
			k := must(t)(f.Parameter("k", shapes.Make(dtypes.Float32, kernel...), nil))
			must(t)(f.ConvGeneral(x, k, axes, c.strides, c.paddings, c.input, c.dilations, c.channelGroups, c.groups))
			var image, weights, output []int
			for _, n := range c.spatial {
				image, weights, output = append(image, n+1), append(weights, n), append(output, n+1)
			}
			if c.channelGroups+c.groups > 0 {
				image, weights, output = append(image, 3), append(weights, 2, 3), append(output, 3)
			}
			if c.groups > 0 {
				image, output = append(image, 0), append(output, 0)
			}
			want := lowering.UnsplittableDims{Operands: [][]int{image, weights}, Results: [][]int{output}}
			assert.Equal(t, want, lowering.FindUnsplittableDims(lastStatement(f)))
		})
	}
}

func TestWalkedDimensionsOfTransforms(t *testing.T) {
	f := lowering.New(lowering.Options{}).Builder("walked").Main()
	x := must(t)(f.Parameter("x", shapes.Make(dtypes.Complex64, 2, 4, 6), nil))
	must(t)(f.FFT(x, compute.FFTForward, []int{4, 6}))
	two := lowering.UnsplittableDims{Operands: [][]int{{1, 2}}, Results: [][]int{{1, 2}}}
	assert.Equal(t, two, lowering.FindUnsplittableDims(lastStatement(f)))
	must(t)(f.FFT(x, compute.FFTForward, nil))
	last := lowering.UnsplittableDims{Operands: [][]int{{2}}, Results: [][]int{{2}}}
	assert.Equal(t, last, lowering.FindUnsplittableDims(lastStatement(f)))
	must(t)(f.Neg(x))
	assert.Equal(t, lowering.UnsplittableDims{Operands: [][]int{nil}, Results: [][]int{nil}},
		lowering.FindUnsplittableDims(lastStatement(f)))
}

func lastStatement(f compute.Function) *ir.Statement {
	body := f.(*lowering.Function).IR().Body
	return body[len(body)-1]
}
