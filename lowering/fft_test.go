package lowering_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering"
)

func TestTransformsHaveTheLengthsOfTheirAxes(t *testing.T) {
	complexes := func(dims ...int) shapes.Shape { return shapes.Make(dtypes.Complex64, dims...) }
	for _, test := range []struct {
		name    string
		x       shapes.Shape
		kind    compute.FFTType
		lengths []int
		want    []int  // the result's dimensions
		err     string // substring of the expected error
	}{
		{"all of the axis", complexes(2, 4), compute.FFTForward, []int{4}, []int{2, 4}, ""},
		{"no lengths", complexes(2, 4), compute.FFTInverse, nil, []int{2, 4}, ""},
		{"three axes", complexes(5, 2, 3, 4), compute.FFTForward, []int{2, 3, 4}, []int{5, 2, 3, 4}, ""},
		{"real", f32(3, 6), compute.FFTForwardReal, []int{3, 6}, []int{3, 4}, ""},
		{"inverse real of an even length", complexes(4), compute.FFTInverseReal, []int{6}, []int{6}, ""},
		{"inverse real of an odd length", complexes(3, 4), compute.FFTInverseReal, []int{3, 7}, []int{3, 7}, ""},
		{"inverse real of one element", complexes(1), compute.FFTInverseReal, []int{1}, []int{1}, ""},

		{"too long", complexes(4), compute.FFTForward, []int{9}, nil,
			"lowering: FFT((Complex64)[4]): length 9 of axis 0, which has dimension 4: they must be equal, so pad or slice " +
				"the operand to 9"},
		{"too short", complexes(4), compute.FFTInverse, []int{3}, nil, "pad or slice the operand to 3"},
		{"wrong on the outer axis", complexes(7, 2, 4), compute.FFTForward, []int{3, 4}, nil,
			"length 3 of axis 1, which has dimension 2"},
		{"real, too long", f32(4), compute.FFTForwardReal, []int{8}, nil, "length 8 of axis 0"},
		{"inverse real, of the operand's dimension", complexes(4), compute.FFTInverseReal, []int{4}, nil,
			"length 4 of axis 0 is that of a result made from dimension 3, got 4"},
		{"inverse real, wrong on the outer axis", complexes(2, 4), compute.FFTInverseReal, []int{3, 6}, nil,
			"length 3 of axis 0"},
		{"no length", complexes(4), compute.FFTForward, []int{0}, nil, "not positive"},
		{"more lengths than axes", complexes(4), compute.FFTForward, []int{4, 4}, nil, "2 lengths, for at most 1 axes"},
		{"four axes", complexes(1, 1, 1, 1), compute.FFTForward, []int{1, 1, 1, 1}, nil, "4 lengths, for at most 3 axes"},
		{"scalar", complexes(), compute.FFTForward, nil, nil, "no axis"},
		{"half precision", shapes.Make(dtypes.Float16, 4), compute.FFTForwardReal, []int{4}, nil, "not Float16"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := lowering.New(lowering.Options{}).Builder("b").Main()
			v, err := f.FFT(must(t)(f.Parameter("x", test.x, nil)), test.kind, test.lengths)
			if test.err != "" {
				var op *lowering.OpError
				require.ErrorAs(t, err, &op)
				assert.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			shape, err := f.Shape(v)
			require.NoError(t, err)
			assert.Equal(t, test.want, shape.Dimensions)
		})
	}
}
