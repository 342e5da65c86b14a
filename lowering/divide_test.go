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

// TestDivisionsThatXLAMayFoldAreHidden expects a barrier for divisions whose operands XLA could
// know, and no barrier for other divisions.
func TestDivisionsThatXLAMayFoldAreHidden(t *testing.T) {
	ints := func(t *testing.T, f compute.Function, flat any, dims ...int) value {
		return must(t)(f.Constant(flat, dims...))
	}
	for _, test := range []struct {
		name   string
		hidden bool
		body   func(t *testing.T, f compute.Function, x, y, n, z value) value
	}{
		{"constants", true, func(t *testing.T, f compute.Function, _, _, _, _ value) value {
			return must(t)(f.Div(ints(t, f, []int32{5}), ints(t, f, []int32{0})))
		}},
		{"one zero among others", true, func(t *testing.T, f compute.Function, _, _, _, _ value) value {
			return must(t)(f.Rem(ints(t, f, []int64{5, 5}, 2), ints(t, f, []int64{10, 0}, 2)))
		}},
		{"many elements", true, func(t *testing.T, f compute.Function, _, _, _, _ value) value {
			return must(t)(f.Div(ints(t, f, []uint8{5}), ints(t, f, append(make([]uint8, 20), 1), 21)))
		}},
		{"a product by 0", true, func(t *testing.T, f compute.Function, x, _, _, _ value) value {
			return must(t)(f.Div(ints(t, f, []int32{5}), must(t)(f.Mul(x, ints(t, f, []int32{0})))))
		}},
		{"a scalar argument, which may be the one replica's number", true, func(t *testing.T, f compute.Function, _, _, n,
			_ value) value {
			return must(t)(f.Div(ints(t, f, []int32{5}), n))
		}},
		{"an argument of a function", true, func(t *testing.T, f compute.Function, x, _, _, _ value) value {
			g, err := f.Builder().NewFunction("g")
			require.NoError(t, err)
			v := must(t)(g.Parameter("x", shapes.Make(dtypes.Int32, 2), nil))
			require.NoError(t, g.Return([]value{must(t)(g.Div(ints(t, g, []int32{5}), v))}, nil))
			out, err := f.Call(g, x)
			require.NoError(t, err)
			return out[0]
		}},
		{"numbers other than 0", false, func(t *testing.T, f compute.Function, x, _, n, _ value) value {
			v := must(t)(f.Div(must(t)(f.Mul(x, x)), ints(t, f, []int32{-10})))
			return must(t)(f.Rem(must(t)(f.Add(v, n)), must(t)(f.Reshape(ints(t, f, []int32{3, 20}, 1, 2), 2))))
		}},
		{"arguments", false, func(t *testing.T, f compute.Function, x, y, _, _ value) value {
			return must(t)(f.Div(must(t)(f.Rem(x, y)), y))
		}},
		{"an argument with its elements moved", false, func(t *testing.T, f compute.Function, x, _, _, _ value) value {
			return must(t)(f.Div(ints(t, f, []int32{5}), must(t)(f.Reverse(must(t)(f.Reshape(x, 2, 1)), 0))))
		}},
		{"an argument divided by what is not known", false, func(t *testing.T, f compute.Function, x, y, _, _ value) value {
			return must(t)(f.Div(x, must(t)(f.Sub(y, y))))
		}},
		{"floats", false, func(t *testing.T, f compute.Function, _, _, _, z value) value {
			return must(t)(f.Div(must(t)(f.Rem(ints(t, f, []float32{5}), ints(t, f, []float32{0}))), must(t)(f.Sub(z, z))))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, target := range []lowering.Target{lowering.TargetTPU, lowering.TargetCPU} {
				body := func(f compute.Function) []value {
					x := must(t)(f.Parameter("x", shapes.Make(dtypes.Int32, 2), nil))
					y := must(t)(f.Parameter("y", shapes.Make(dtypes.Int32, 2), nil))
					n := must(t)(f.Parameter("n", shapes.Make(dtypes.Int32), nil))
					z := must(t)(f.Parameter("z", f32(2), nil))
					return []value{test.body(t, f, x, y, n, z)}
				}
				got := lower(t, lowering.Options{Target: target}, body)
				want := 0
				if test.hidden {
					want = 1
				}
				assert.Equal(t, want, count(got, "optimization_barrier"), got)
				assert.Equal(t, got, lower(t, lowering.Options{Target: target}, body), "the same text each time")
			}
		})
	}
}

func TestDivisionRefusesOperandsThatDiffer(t *testing.T) {
	f := lowering.New(lowering.Options{}).Builder("b").Main()
	_, err := f.Div(must(t)(f.Constant([]int32{1})), must(t)(f.Constant([]int64{0})))
	assert.EqualError(t, err, "lowering: Div((Int32), (Int64)): operands have dtypes Int32 and Int64: convert one of them")
	_, err = f.Rem(must(t)(f.Constant([]int32{1, 2}, 2)), must(t)(f.Constant([]int32{0, 0, 0}, 3)))
	assert.ErrorContains(t, err, "axis 0 has dimensions 2 and 3")
}
