package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAConvolutionCountsWhatLiesInside(t *testing.T) {
	for want, w := range map[float64]windowDim{
		3 * 6: {size: 3, stride: 1, dilation: 1, base: 1}, 3*8 - 2: {size: 3, stride: 1, low: 1, dilation: 1, base: 1},
		4: {size: 1, stride: 1, dilation: 1, base: 2, low: 0},
	} {
		out := map[float64]int64{18: 6, 22: 8, 4: 8}[want]
		assert.Equal(t, want, w.inside(8, out), "%+v", w)
	}
	p := hloProduct{inputFeature: 3, outputFeature: 3, inputSpatial: []uint64{1, 2}, outSpatial: []uint64{1, 2},
		window: []windowDim{{3, 1, 0, 1, 1}, {3, 1, 0, 1, 1}}}
	assert.Equal(t, 2.0*2*6*6*4*3*9, p.convolution(hloShape{dims: []uint64{2, 8, 8, 3}}, hloShape{dims: []uint64{2, 6, 6, 4}}))
}
