package hlo

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAConvolutionCountsWhatLiesInside(t *testing.T) {
	for want, w := range map[float64]windowDim{
		3 * 6: {size: 3, stride: 1, dilation: 1, base: 1}, 3*8 - 2: {size: 3, stride: 1, low: 1, dilation: 1, base: 1},
		4: {size: 1, stride: 1, dilation: 1, base: 2, low: 0},
	} {
		out := map[float64]int64{18: 6, 22: 8, 4: 8}[want]
		assert.Equal(t, want, w.countInside(8, out), "%+v", w)
	}
	p := product{inputFeature: 3, outputFeature: 3, inputSpatial: []uint64{1, 2}, outSpatial: []uint64{1, 2},
		window: []windowDim{{3, 1, 0, 1, 1}, {3, 1, 0, 1, 1}}}
	assert.Equal(t, 2.0*2*6*6*4*3*9, p.convolution(hloShape{dims: []uint64{2, 8, 8, 3}},
		hloShape{dims: []uint64{2, 6, 6, 4}}))
}

// Compilers write a sum that is broadcast to the shape of its operand, as in softmax, as windows
// that each contain a whole dimension: 16383 positions over 8192 elements. The sum is computed
// once.
func TestAReductionOverWindowsCountsItsElements(t *testing.T) {
	of := func(dims ...uint64) hloShape { return hloShape{dims: dims} }
	one := windowDim{size: 1, stride: 1, dilation: 1, base: 1}
	for _, c := range []struct {
		name    string
		window  []windowDim
		in, out hloShape
		want    float64
	}{
		{"a sum of rows, broadcast", []windowDim{one, {size: 16383, stride: 1, low: 8191, dilation: 1, base: 1}},
			of(64, 8192), of(64, 8192), 64 * 8192},
		{"a sum of columns, broadcast", []windowDim{{size: 127, stride: 1, low: 63, dilation: 1, base: 1}, one}, of(64, 10),
			of(64, 10), 64 * 10},
		{"a sum", []windowDim{one, {size: 8, stride: 1, dilation: 1, base: 1}}, of(4, 8), of(4, 1), 4 * 8},
		{"pooling", []windowDim{one, {size: 3, stride: 3, dilation: 1, base: 1}}, of(4, 9), of(4, 3), 4 * 9},
		{"pooling with padding", []windowDim{{size: 3, stride: 1, low: 1, dilation: 1, base: 1}}, of(8), of(8), 3*8 - 2},
		{"a running sum", []windowDim{{size: 8192, stride: 1, low: 8191, dilation: 1, base: 1}}, of(8192), of(8192),
			8192 * 8193 / 2},
		{"a dilated window", []windowDim{{size: 3, stride: 1, dilation: 2, base: 1}}, of(8), of(4), 12},
	} {
		assert.Equal(t, c.want, product{window: c.window}.windows(c.in, c.out), c.name)
	}
}

// The number of positions on the input equals that of a loop over all positions.
func TestPositionsOfAWindowAreCounted(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		w := windowDim{size: 1 + random.Int64N(6), stride: 1 + random.Int64N(3), low: random.Int64N(9) - 3,
			dilation: 1 + random.Int64N(3), base: 1 + random.Int64N(2)}
		in, out := 1+random.Int64N(9), 1+random.Int64N(9)
		want := 0.0
		for o := range out {
			for k := range w.size {
				if at := o*w.stride + k*w.dilation - w.low; at >= 0 && at%w.base == 0 && at/w.base < in {
					want++
				}
			}
		}
		assert.Equal(t, want, w.countInside(in, out), "%+v over %d, %d times", w, in, out)
	}
}
