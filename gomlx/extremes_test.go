package gomlx_test

import (
	"math"
	"math/rand"
	"testing"

	"github.com/gomlx/compute"
	"github.com/stretchr/testify/assert"
)

// TestTheLargestAndLowestOfFloatsAreThoseOfTheNumbers reduces rows of numbers of every kind, NaN of
// either sign among them, and rows of nothing.
func TestTheLargestAndLowestOfFloatsAreThoseOfTheNumbers(t *testing.T) {
	b := newBackend(t, alone)
	inf, tiny := float32(math.Inf(1)), math.Float32frombits(1)
	special := []float32{0, math.Float32frombits(1 << 31), inf, -inf, math.MaxFloat32, -math.MaxFloat32, tiny, -tiny, 1,
		-1, 1.5, -1.5}
	nans := []float32{math.Float32frombits(0x7fc00000), math.Float32frombits(0xffc00000), math.Float32frombits(0x7f800001),
		math.Float32frombits(0xffffffff)}
	random := rand.New(rand.NewSource(3))
	const rows, width = 64, 67
	x := make([]float32, rows*width)
	for i := range x {
		switch row := i / width; {
		case row < 16:
			x[i] = float32(random.NormFloat64())
		case row < 32:
			x[i] = special[random.Intn(len(special))]
		case row < 40: // the numbers of one sign
			x[i] = -float32(math.Abs(random.NormFloat64()))
		case row < 48 && i%width == (row*13)%width:
			x[i] = nans[row%len(nans)]
		case row == 50:
			x[i] = -inf
		case row == 51:
			x[i] = inf
		case row == 52:
			x[i] = nans[i%len(nans)]
		default:
			x[i] = float32(random.NormFloat64()) * 1e30
		}
	}
	got := runOf(t, b, []tensor{{flat: x, dims: []int{rows, width}}, {flat: []float32{}, dims: []int{2, 0}}},
		func(f compute.Function, in []compute.Value) []compute.Value {
			do := must(t)
			return []compute.Value{do(f.ReduceMax(in[0], 1)), do(f.ReduceMin(in[0], 1)), do(f.ReduceMax(in[0])),
				do(f.ReduceMin(in[1], 1)), do(f.ReduceMax(in[1], 1))}
		})
	same := func(want, got float32, row int) {
		if want != want {
			assert.True(t, got != got, "row %d: %v is not NaN", row, got)
			return
		}
		assert.True(t, want == got, "row %d: %v is not %v", row, got, want)
	}
	for row := range rows {
		largest, lowest := -inf, inf
		for _, v := range x[row*width : (row+1)*width] {
			largest, lowest = max(largest, v), min(lowest, v) // Go's keep NaN
		}
		same(largest, got[0].([]float32)[row], row)
		same(lowest, got[1].([]float32)[row], row)
	}
	assert.True(t, math.IsNaN(float64(got[2].([]float32)[0])))
	assert.Equal(t, []float32{inf, inf}, got[3])
	assert.Equal(t, []float32{-inf, -inf}, got[4])
}
