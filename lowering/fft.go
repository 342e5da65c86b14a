package lowering

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// maxFFTAxes is the maximum number of axes of an FFT in XLA.
const maxFFTAxes = 3

// FFT transforms x along its last len(lengths) axes, or along the last axis if lengths is empty.
// Each length must equal the size of its axis. For an inverse real transform the last length is the
// size of the result, n for an operand of size n/2+1. Pad or slice the operand for other lengths.
func (f *Function) FFT(x compute.Value, kind compute.FFTType, lengths []int) (compute.Value, error) {
	return f.addOp("FFT", valueList(x), func(in []*stablehlo.Value) *stablehlo.Value {
		kinds := map[compute.FFTType]types.FFTType{
			compute.FFTForward:     types.FFTForward,
			compute.FFTInverse:     types.FFTInverse,
			compute.FFTForwardReal: types.FFTForwardReal,
			compute.FFTInverseReal: types.FFTInverseReal,
		}
		k, ok := kinds[kind]
		if !ok {
			panic(fmt.Errorf("unknown transform %s", kind))
		}
		check(checkFFT(in[0].Shape(), kind, lengths))
		return must(stablehlo.FFT(in[0], k, lengths...))
	})
}

// checkFFT returns an error if a length does not match its axis. Compilers do not check lengths and
// read past the end of the operand.
func checkFFT(s xshapes.Shape, kind compute.FFTType, lengths []int) error {
	rank := s.Rank()
	switch {
	case rank == 0:
		return fmt.Errorf("a scalar has no axis to transform along: reshape it to one of dimension 1")
	case len(lengths) > min(rank, maxFFTAxes):
		return fmt.Errorf("%d lengths, for at most %d axes", len(lengths), min(rank, maxFFTAxes))
	case kind == compute.FFTForwardReal && s.DType != dtypes.Float32 && s.DType != dtypes.Float64:
		return fmt.Errorf("a real transform is of Float32 or Float64, not %s: convert it first", s.DType)
	}
	for i, length := range lengths {
		axis := rank - len(lengths) + i
		dim := s.Dimensions[axis]
		want := length
		if kind == compute.FFTInverseReal && i == len(lengths)-1 {
			want = length/2 + 1
		}
		switch {
		case length < 1:
			return fmt.Errorf("length %d of axis %d is not positive", length, axis)
		case dim != want && want == length:
			return fmt.Errorf(
				"length %d of axis %d, which has dimension %d: they must be equal, so pad or slice the operand to %d", length, axis,
				dim, length)
		case dim != want:
			return fmt.Errorf(
				"length %d of axis %d is that of a result made from dimension %d, got %d: pad or slice the operand to %d", length,
				axis, want, dim, want)
		}
	}
	return nil
}
