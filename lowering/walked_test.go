package lowering_test

import (
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
		KernelSpatial: []int{0, 1}, KernelInputChannels: 2, KernelOutputChannels: 3, OutputBatch: 0, OutputSpatial: []int{1, 2}, OutputChannels: 3}
	const channels = 4
	for name, c := range map[string]struct {
		kernel, strides          []int
		paddings                 [][2]int
		input, dilations         []int
		channelGroups, batch     int
		image, weights, produced []int
	}{
		"one element":              {kernel: []int{1, 1}},
		"one element, padded":      {kernel: []int{1, 1}, paddings: [][2]int{{1, 0}, {0, 0}}, image: []int{1}, weights: []int{0}, produced: []int{1}},
		"one element, stride":      {kernel: []int{1, 1}, strides: []int{1, 2}, image: []int{2}, weights: []int{1}, produced: []int{2}},
		"one element, dilated":     {kernel: []int{1, 1}, input: []int{2, 1}, image: []int{1}, weights: []int{0}, produced: []int{1}},
		"rows":                     {kernel: []int{3, 1}, image: []int{1}, weights: []int{0}, produced: []int{1}},
		"columns":                  {kernel: []int{1, 3}, image: []int{2}, weights: []int{1}, produced: []int{2}},
		"both":                     {kernel: []int{3, 3}, image: []int{1, 2}, weights: []int{0, 1}, produced: []int{1, 2}},
		"all rows":                 {kernel: []int{8, 3}, image: []int{2}, weights: []int{1}, produced: []int{2}},
		"all rows, padded":         {kernel: []int{8, 1}, paddings: [][2]int{{0, 1}, {0, 0}}, image: []int{1}, weights: []int{0}, produced: []int{1}},
		"every second row":         {kernel: []int{4, 1}, dilations: []int{2, 1}, image: []int{1}, weights: []int{0}, produced: []int{1}},
		"groups of channels":       {kernel: []int{1, 1}, channelGroups: 2, image: []int{3}, weights: []int{2, 3}, produced: []int{3}},
		"groups of the batch":      {kernel: []int{1, 1}, batch: 2, image: []int{3, 0}, weights: []int{2, 3}, produced: []int{3, 0}},
		"groups of channels, rows": {kernel: []int{3, 1}, channelGroups: 2, image: []int{1, 3}, weights: []int{0, 2, 3}, produced: []int{1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			f := lowering.New(lowering.Options{}).Builder("walked").Main()
			x := must(t)(f.Parameter("x", shapes.Make(dtypes.Float32, 2, 8, 8, channels), nil))
			k := must(t)(f.Parameter("k", shapes.Make(dtypes.Float32, c.kernel[0], c.kernel[1], channels/max(c.channelGroups, 1), channels), nil))
			must(t)(f.ConvGeneral(x, k, axes, c.strides, c.paddings, c.input, c.dilations, c.channelGroups, c.batch))
			walked := lowering.WalkedDims(lastStatement(f))
			assert.Equal(t, lowering.Walked{Operands: [][]int{c.image, c.weights}, Results: [][]int{c.produced}}, walked)
		})
	}
}

func TestWalkedDimensionsOfTransforms(t *testing.T) {
	f := lowering.New(lowering.Options{}).Builder("walked").Main()
	x := must(t)(f.Parameter("x", shapes.Make(dtypes.Complex64, 2, 4, 6), nil))
	must(t)(f.FFT(x, compute.FFTForward, []int{4, 6}))
	assert.Equal(t, lowering.Walked{Operands: [][]int{{1, 2}}, Results: [][]int{{1, 2}}}, lowering.WalkedDims(lastStatement(f)))
	must(t)(f.FFT(x, compute.FFTForward, nil))
	assert.Equal(t, lowering.Walked{Operands: [][]int{{2}}, Results: [][]int{{2}}}, lowering.WalkedDims(lastStatement(f)))
	must(t)(f.Neg(x))
	assert.Equal(t, lowering.Walked{Operands: [][]int{nil}, Results: [][]int{nil}}, lowering.WalkedDims(lastStatement(f)))
}

func lastStatement(f compute.Function) *ir.Statement {
	body := f.(*lowering.Function).IR().Body
	return body[len(body)-1]
}
