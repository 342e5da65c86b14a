package gomlx_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type value = compute.Value

// edges are ops at values, sizes and dtypes where the compilers go wrong, or where the builder of
// their text does.
var edges = []opTest{
	{"leading zeros of constants", []tensor{{flat: []int32{0}}},
		func(t testing.TB, f compute.Function, _ []value) value {
			do := must(t)
			var parts []value
			for _, flat := range []any{[]int8{-1, 5}, []int16{-1, 5}, []int32{-1, 5}, []int64{-1, 5}, []uint8{255, 5}} {
				parts = append(parts, do(f.ConvertDType(do(f.Clz(do(f.Constant(flat, 2)))), dtypes.Int32)))
			}
			return do(f.Concatenate(0, parts...))
		}, []int32{0, 5, 0, 13, 0, 29, 0, 61, 0, 5}},
	{"real parts of complex numbers in other dtypes", []tensor{{flat: []complex64{-2.5 + 1i, 3i, 0}, dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []value) value {
			do := must(t)
			var parts []value
			for _, d := range []dtypes.DType{dtypes.Int8, dtypes.Int64, dtypes.Float16, dtypes.Bool} {
				parts = append(parts, do(f.ConvertDType(do(f.ConvertDType(x[0], d)), dtypes.Float32)))
			}
			return do(f.Concatenate(0, parts...))
		}, []float32{-2, 0, 0, -2, 0, 0, -2.5, 0, 0, 1, 1, 0}},
	{"powers of unsigned numbers", []tensor{{flat: []uint8{7, 7, 2, 3, 0}, dims: []int{5}},
		{flat: []uint8{128, 129, 7, 255, 200}, dims: []int{5}}},
		func(t testing.TB, f compute.Function, x []value) value { return must(t)(f.Pow(x[0], x[1])) },
		[]uint8{1, 7, 128, 171, 0}},
	{"booleans as bytes", []tensor{{flat: []uint8{0, 1, 7}, dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []value) value {
			do := must(t)
			return do(f.Bitcast(do(f.Bitcast(x[0], dtypes.Bool)), dtypes.Int8))
		}, []int8{0, 1, 1}},
	{"slices of nothing", []tensor{{flat: []int16{}, dims: []int{2, 0}}, {flat: []int16{1, 2, 3}, dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []value) value {
			do := must(t)
			none := do(f.Reshape(do(f.Slice(x[0], []int{0, 0}, []int{2, 0}, nil)), 0))
			end := do(f.Slice(x[1], []int{3}, []int{3}, []int{2}))
			return do(f.Concatenate(0, none, end, do(f.Slice(x[1], []int{2}, []int{3}, nil))))
		}, []int16{3}},
	{"window of a scalar", []tensor{{flat: []int32{7}}},
		func(t testing.TB, f compute.Function, x []value) value {
			return must(t)(f.ReduceWindow(x[0], compute.ReduceOpMax, nil, nil, nil, nil, nil))
		}, []int32{7}},
	{"windows of dilated nothing", []tensor{{flat: []int32{}, dims: []int{0}}},
		func(t testing.TB, f compute.Function, x []value) value {
			return must(t)(f.ReduceWindow(x[0], compute.ReduceOpSum, []int{1}, nil, []int{2}, nil, [][2]int{{1, 2}}))
		}, []int32{0, 0, 0}},
}

func TestEdges(t *testing.T) {
	b := newBackend(t, alone)
	for _, test := range edges {
		t.Run(test.name, func(t *testing.T) {
			got := runOf(t, b, test.in, func(f compute.Function, x []value) []value { return []value{test.body(t, f, x)} })
			assert.Equal(t, test.want, got[0])
		})
	}
}

// TestIndicesOfEveryIntegerReachAllRows takes and changes row 100 or 200 of 300, and what is past
// the end, by indices of each integer type, as constants and as arguments.
func TestIndicesOfEveryIntegerReachAllRows(t *testing.T) {
	b := newBackend(t, alone)
	rows := tensor{flat: make([]int32, 300), dims: []int{300}}
	for i := range rows.flat.([]int32) {
		rows.flat.([]int32)[i] = int32(i)
	}
	for _, test := range []struct {
		name  string
		index any
		want  int32
		in    bool
	}{
		{"Int8", []int8{100}, 100, true}, {"Int8 below", []int8{-1}, 0, false},
		{"Int16", []int16{200}, 200, true}, {"Int32", []int32{200}, 200, true}, {"Int64", []int64{200}, 200, true},
		{"Uint8", []uint8{200}, 200, true}, {"Uint16", []uint16{200}, 200, true},
		{"Uint16 past the end", []uint16{60000}, 299, false}, {"Uint32 past the end", []uint32{1 << 31}, 299, false},
		{"Uint64 past the end", []uint64{1 << 63}, 299, false}, {"Uint64", []uint64{200}, 200, true},
	} {
		for _, constant := range []bool{false, true} {
			name := test.name
			if constant {
				name += ", constant"
			}
			t.Run(name, func(t *testing.T) {
				got := runOf(t, b, []tensor{rows, {flat: test.index}}, func(f compute.Function, x []value) []value {
					do := must(t)
					data, at := x[0], x[1]
					if constant {
						data, at = do(f.Constant(rows.flat, 300)), do(f.Constant(test.index))
					}
					lowest := do(f.Constant([]int32{-1000}))
					one := do(f.Reshape(lowest, 1))
					where := func(v value) value { return do(f.ArgMinMax(v, 0, dtypes.Int32, true)) }
					return []value{
						do(f.Reshape(do(f.DynamicSlice(data, []value{at}, []int{1})))),
						do(f.Gather(data, do(f.Reshape(at, 1)), 0, nil, []int{0}, []int{0}, []int{1}, false)),
						where(do(f.DynamicUpdateSlice(data, one, []value{at}))),
						where(do(f.ScatterSum(data, do(f.Reshape(at, 1)), lowest, 0, nil, []int{0}, []int{0}, false, false))),
					}
				})
				for i, what := range []string{"slice", "gather", "update"} {
					assert.Equal(t, []int32{test.want}, got[i], what)
				}
				if test.in {
					assert.Equal(t, []int32{test.want}, got[3], "scatter")
				} else {
					assert.Equal(t, []int32{0}, got[3], "a scatter past the end does nothing: row 0 is the lowest as before")
				}
			})
		}
	}
}

func TestMaximaAndMinimaKeepNaN(t *testing.T) {
	b := newBackend(t, alone)
	n := float32(math.NaN())
	l, r := []float32{n, 1, 2, 3, 4, 5, 6, 7, 8}, []float32{1, n, 0, 3, n, 9, 9, 9, 9}
	for _, d := range []dtypes.DType{dtypes.Float32, dtypes.Float64, dtypes.BFloat16, dtypes.Float16} {
		t.Run(d.String(), func(t *testing.T) {
			lhs, rhs := tensor{flat: floats(d, l), dims: []int{9}}, tensor{flat: floats(d, r), dims: []int{9}}
			got := runOf(t, b, []tensor{lhs, rhs}, func(f compute.Function, x []value) []value {
				do := must(t)
				low, zero := do(f.Constant(floats(d, []float32{-1}))), do(f.Constant(floats(d, []float32{0})))
				pairs := []value{do(f.Max(x[0], x[1])), do(f.Min(x[0], x[1])), do(f.Clamp(zero, x[0], x[1])), do(f.Max(x[1], x[0]))}
				one := []value{do(f.Clamp(low, x[1], low)), do(f.Max(x[1], zero)), do(f.Min(zero, x[1]))}
				all := []value{do(f.ReduceMax(x[1])), do(f.ReduceMin(x[1]))}
				var out []value
				for _, v := range append(append(pairs, one...), all...) {
					out = append(out, do(f.IsNaN(v)))
				}
				return out
			})
			for i, v := range got {
				switch {
				case i < 4:
					assert.Equal(t, []bool{true, true, false, false, true, false, false, false, false}, v, "op %d", i)
				case i < 7:
					assert.Equal(t, []bool{false, true, false, false, true, false, false, false, false}, v, "op %d", i)
				default:
					assert.Equal(t, []bool{true}, v, "op %d", i)
				}
			}
		})
	}
}

// floats is v in a floating-point dtype.
func floats(d dtypes.DType, v []float32) any {
	switch d {
	case dtypes.Float64:
		return convert(v, func(x float32) float64 { return float64(x) })
	case dtypes.BFloat16:
		return convert(v, bfloat16.FromFloat32)
	case dtypes.Float16:
		return convert(v, float16.FromFloat32)
	}
	return v
}

func convert[T any](v []float32, to func(float32) T) []T {
	out := make([]T, len(v))
	for i, x := range v {
		out[i] = to(x)
	}
	return out
}

// TestComplexNumbersAreRefusedWhereTheyHaveNoMeaning uses complex operations that crash the CPU
// compiler.
func TestComplexNumbersAreRefusedWhereTheyHaveNoMeaning(t *testing.T) {
	b := newBackend(t, alone)
	for _, d := range []dtypes.DType{dtypes.Complex64, dtypes.Complex128} {
		f := b.Builder("complex").Main()
		x := must(t)(f.Parameter("x", tensor{dims: []int{2}, dtype: d}.shape(), nil))
		for name, op := range map[string]func(l, r value) (value, error){
			"LessThan": f.LessThan, "LessOrEqual": f.LessOrEqual, "GreaterThan": f.GreaterThan,
			"GreaterOrEqual":     f.GreaterOrEqual,
			"LessThanTotalOrder": f.LessThanTotalOrder, "EqualTotalOrder": f.EqualTotalOrder, "Rem": f.Rem,
		} {
			_, err := op(x, x)
			require.ErrorContains(t, err, "complex numbers have no", name)
		}
		for _, target := range []dtypes.DType{dtypes.Complex64, dtypes.Complex128, dtypes.Float32, dtypes.Uint8} {
			if target != d {
				_, err := f.Bitcast(x, target)
				require.ErrorContains(t, err, "split a complex number with Real and Imag")
			}
		}
	}
}
