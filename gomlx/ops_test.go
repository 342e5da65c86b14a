package gomlx_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	nan = float32(math.NaN())
	inf = float32(math.Inf(1))
)

// opTest runs one op, or a few, on given parameters.
type opTest struct {
	name string
	in   []tensor
	body func(t testing.TB, f compute.Function, x []compute.Value) compute.Value
	want any
}

// ops are the ops that are more than one op of StableHLO, or that GoMLX's compliance suite does not
// cover.
var ops = []opTest{
	{"magnitude of extreme complex numbers",
		[]tensor{{flat: []complex64{3 + 4i, 0, complex(inf, 1), complex(-1, -inf), 3e30 + 4e30i, 3e-30 - 4e-30i},
			dims: []int{6}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			return do(f.Abs(x[0]))
		},
		[]float32{5, 0, inf, inf, 5e30, 5e-30}},
	{"parts of real numbers", []tensor{{flat: []float32{2, -3}, dims: []int{2}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			return do(f.Concatenate(0, do(f.Real(x[0])), do(f.Imag(x[0])), do(f.Conj(x[0]))))
		}, []float32{2, -3, 0, 0, 2, -3}},
	{"conjugate", []tensor{{flat: []complex64{1 + 2i}, dims: []int{1}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			return do(f.Conj(x[0]))
		}, []complex64{1 - 2i}},
	{"sign of unsigned numbers", []tensor{{flat: []uint8{0, 1, 255}, dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			return do(f.Sign(x[0]))
		}, []uint8{0, 1, 1}},
	{"absolute value of unsigned numbers", []tensor{{flat: []uint8{0, 1, 255}, dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			return do(f.Abs(x[0]))
		}, []uint8{0, 1, 255}},
	{"first of the lowest", []tensor{{flat: []int32{4, 1, 1, 7}, dims: []int{4}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			return do(f.ArgMinMax(x[0], -1, dtypes.Int32, true))
		}, []int32{1}},
	{"first not-a-number is the highest", []tensor{{flat: []float32{4, inf, nan, 7, nan, 1, -inf, 3}, dims: []int{2, 4}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			return do(f.ArgMinMax(x[0], 1, dtypes.Int64, false))
		}, []int64{2, 0}},
	{"all at the worst value", []tensor{{flat: []float32{-inf, -inf}, dims: []int{2}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			return do(f.ArgMinMax(x[0], 0, dtypes.Uint8, false))
		}, []uint8{0}},
	{"reductions of nothing are neutral", []tensor{{flat: []float32{}, dims: []int{0}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			var parts []compute.Value
			for _, reduce := range []func(compute.Value, ...int) (compute.Value, error){
				f.ReduceSum, f.ReduceProduct, f.ReduceMax, f.ReduceMin,
			} {
				parts = append(parts, do(f.Reshape(do(reduce(x[0])), 1)))
			}
			return do(f.Concatenate(0, parts...))
		}, []float32{0, 1, -inf, inf}},
	{"integer maximum of nothing", []tensor{{flat: []int16{}, dims: []int{0}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			return do(f.ReduceMax(x[0]))
		}, []int16{math.MinInt16}},
	{"unsigned minimum of nothing", []tensor{{flat: []uint32{}, dims: []int{0}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			return do(f.ReduceMin(x[0]))
		}, []uint32{math.MaxUint32}},
	{"bits of nothing", []tensor{{flat: []uint8{}, dims: []int{0}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			return do(f.ReduceBitwiseAnd(x[0]))
		}, []uint8{255}},
	{"cumulative sum, exclusive and reversed", []tensor{{flat: []int32{1, 2, 3, 4, 5, 6}, dims: []int{2, 3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			return do(f.CumSum(x[0], 1, compute.CumSumOptions{Exclusive: true, Reverse: true}))
		}, []int32{5, 3, 0, 11, 6, 0}},
	{"choice between scalars", []tensor{{flat: []bool{true, false}, dims: []int{2}}, {flat: []int8{1}}, {flat: []int8{2}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			return do(f.Where(x[0], x[1], x[2]))
		}, []int8{1, 2}},
	{"choice by a scalar", []tensor{{flat: []bool{false}}, {flat: []int8{1}}, {flat: []int8{2, 3}, dims: []int{2}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			return do(f.Where(x[0], x[1], x[2]))
		}, []int8{2, 3}},
	{"a barrier keeps values whatever its dependencies hold", []tensor{{flat: []float32{1, 2}, dims: []int{2}},
		{flat: []float32{nan, inf}, dims: []int{2}}, {flat: []bool{}, dims: []int{0}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			return do(f.SchedulingBarrier(do(f.Neg(x[0])), x[1], x[2]))
		}, []float32{-1, -2}},
	{"slice up to the end", []tensor{{flat: []int64{1, 2, 3}, dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			return do(f.Slice(x[0], []int{1}, []int{shapes.DynamicDim}, nil))
		}, []int64{2, 3}},
	{"start indices in one vector", []tensor{{flat: []int32{1, 2, 3, 4, 5, 6}, dims: []int{2, 3}},
		{flat: []int32{1, 9}, dims: []int{2}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			return do(f.DynamicSlice(x[0], x[1:], []int{1, 2}))
		}, []int32{5, 6}},
	{"bfloat16 dot with sums in float32", []tensor{{flat: halves(256, 1), dims: []int{1, 256}},
		{flat: halves(256, 1.0078125), dims: []int{256, 1}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			return do(f.DotGeneral(x[0], []int{1}, nil, x[1], []int{0}, nil,
				compute.DotGeneralConfig{AccumulatorDType: dtypes.Float32, OutputDType: dtypes.Float32}))
		}, []float32{258}},
	{"int8 dot into int32", []tensor{{flat: []int8{100, 100, 100}, dims: []int{3}}, {flat: []int8{100, 100, -100},
		dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)

			return do(f.DotGeneral(x[0], []int{0}, nil, x[1], []int{0}, nil,
				compute.DotGeneralConfig{OutputDType: dtypes.Int32}))
		}, []int32{10000}},
	{"Fourier transform and back", []tensor{{flat: []float32{1, 2, 3, 4}, dims: []int{4}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			there := do(f.FFT(x[0], compute.FFTForwardReal, []int{4}))
			return do(f.FFT(there, compute.FFTInverseReal, []int{4}))
		}, []float32{1, 2, 3, 4}},
	{"Fourier transform of complex numbers", []tensor{{flat: []complex64{1, 0, 0, 0}, dims: []int{4}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			return must(t)(f.FFT(x[0], compute.FFTForward, []int{4}))
		}, []complex64{1, 1, 1, 1}},
	{"inverse Fourier transform", []tensor{{flat: []complex64{1, 1, 1, 1}, dims: []int{4}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			return must(t)(f.FFT(x[0], compute.FFTInverse, []int{4}))
		}, []complex64{1, 0, 0, 0}},
	{"total order of floats", []tensor{{flat: []float32{float32(math.Copysign(0, -1)), nan, 1}, dims: []int{3}},
		{flat: []float32{0, inf, 1}, dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			var all []compute.Value
			for _, compare := range []func(l, r compute.Value) (compute.Value, error){
				f.LessThanTotalOrder, f.LessOrEqualTotalOrder, f.EqualTotalOrder,
				f.NotEqualTotalOrder, f.GreaterOrEqualTotalOrder, f.GreaterThanTotalOrder,
			} {
				all = append(all, do(compare(x[0], x[1])))
			}
			return do(f.Concatenate(0, all...))
		}, []bool{
			true, false, false, // <
			true, false, true, // <=
			false, false, true, // ==
			true, true, false, // !=
			false, true, true, // >=
			false, true, false, // >
		}},
	{"total order of integers", []tensor{{flat: []int32{-1, 2}, dims: []int{2}}, {flat: []int32{1, 2}, dims: []int{2}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			return must(t)(f.LessThanTotalOrder(x[0], x[1]))
		}, []bool{true, false}},
	{"batch norm", []tensor{{flat: []float32{1, 10, 3, 30}, dims: []int{2, 2}}, {flat: []float32{1, 2}, dims: []int{2}},
		{flat: []float32{0, 5}, dims: []int{2}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			normalized, mean, variance, err := f.BatchNormForTraining(x[0], x[1], x[2], 0, -1)
			require.NoError(t, err)
			inference := do(f.BatchNormForInference(x[0], x[1], x[2], mean, variance, 0, -1))
			same := do(f.Sub(normalized, inference))
			return do(f.Concatenate(0, do(f.Reshape(normalized, 4)), mean, variance, do(f.Reshape(same, 4))))
		}, []float32{-1, 3, 1, 7, 2, 20, 1, 100, 0, 0, 0, 0}},
	{"batch norm gradient", []tensor{{flat: []float32{-1, 1}, dims: []int{2, 1}}, {flat: []float32{3}, dims: []int{1}},
		{flat: []float32{0}, dims: []int{1}},
		{flat: []float32{1}, dims: []int{1}}, {flat: []float32{1, 3}, dims: []int{2, 1}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			gradX, gradScale, gradOffset, err := f.BatchNormGradient(x[0], x[1], x[2], x[3], x[4], 0, 1)
			require.NoError(t, err)
			return do(f.Concatenate(0, do(f.Reshape(gradX, 2)), gradScale, gradOffset))
		}, []float32{0, 0, 2, 4}},
	{"clamp", []tensor{{flat: []int32{0}}, {flat: []int32{-5, 3, 12}, dims: []int{3}}, {flat: []int32{10}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			return must(t)(f.Clamp(x[0], x[1], x[2]))
		}, []int32{0, 3, 10}},
	{"gradient of a max pool", []tensor{{flat: []float32{1, 5, 2, 2, 9, 3}, dims: []int{6}}, {flat: []float32{10, 20, 30},
		dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			return must(t)(f.SelectAndScatterMax(x[0], x[1], []int{2}, []int{2}, nil))
		}, []float32{0, 10, 20, 0, 30, 0}},
	{"gradient of a min pool", []tensor{{flat: []float32{1, 5, 2, 3, 9, 3}, dims: []int{6}}, {flat: []float32{10, 20, 30},
		dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			return must(t)(f.SelectAndScatterMin(x[0], x[1], []int{2}, []int{2}, nil))
		}, []float32{10, 0, 20, 0, 0, 30}},
	{"largest of windows", []tensor{{flat: []float32{1, 5, 2, 4}, dims: []int{4}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			return must(t)(f.ReduceWindow(x[0], compute.ReduceOpMax, []int{2}, []int{1}, nil, nil, [][2]int{{1, 0}}))
		}, []float32{1, 5, 5, 4}},
	{"scatters that keep the larger and the smaller", []tensor{{flat: []int32{5, 5, 5}, dims: []int{3}},
		{flat: []int32{0, 2, 0}, dims: []int{3, 1}}, {flat: []int32{9, 1, 3}, dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			larger := do(f.ScatterMax(x[0], x[1], x[2], 1, nil, []int{0}, []int{0}, false, false))
			return do(f.ScatterMin(larger, x[1], x[2], 1, nil, []int{0}, []int{0}, false, false))
		}, []int32{3, 5, 1}},
	{"reverse", []tensor{{flat: []int32{1, 2, 3}, dims: []int{3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			return must(t)(f.Reverse(x[0], 0))
		}, []int32{3, 2, 1}},
	{"two tensors sorted by the first", []tensor{{flat: []int32{2, 1, 2, 0}, dims: []int{4}},
		{flat: []int32{10, 11, 12, 13}, dims: []int{4}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			less := closure(t, f, func(c compute.Function) []compute.Value {
				s := shapes.Make(dtypes.Int32)
				l := do(c.Parameter("l", s, nil))
				r := do(c.Parameter("r", s, nil))
				do(c.Parameter("l2", s, nil))
				do(c.Parameter("r2", s, nil))
				return []compute.Value{do(c.LessThan(l, r))}
			})
			sorted, err := f.Sort(less, -1, true, x...)
			require.NoError(t, err)
			return do(f.Concatenate(0, sorted...))
		}, []int32{0, 1, 2, 2, 13, 11, 10, 12}},
	{"a loop that uses values from outside", []tensor{{flat: []float32{2}}, {flat: []int32{5}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			zero, one := do(f.Constant([]int32{0})), do(f.Constant([]int32{1}))
			state := func(body func(c compute.Function, i, v compute.Value) []compute.Value) compute.Function {
				return closure(t, f, func(c compute.Function) []compute.Value {
					i := do(c.Parameter("i", shapes.Make(dtypes.Int32), nil))
					v := do(c.Parameter("v", shapes.Make(dtypes.Float32), nil))
					return body(c, i, v)
				})
			}
			out, err := f.While(
				state(func(c compute.Function, i, _ compute.Value) []compute.Value {
					return []compute.Value{do(c.LessThan(i, x[1]))}
				}),
				state(func(c compute.Function, i, v compute.Value) []compute.Value {
					step := do(c.Exp(do(c.Log(x[0])))) // computed inside, of a value from outside
					return []compute.Value{do(c.Add(i, one)), do(c.Mul(v, step))}
				}), zero, do(f.Constant([]float32{1})))
			require.NoError(t, err)
			return out[1]
		}, []float32{32}},
	{"small integers of bytes and back", []tensor{{flat: []uint8{0x8F, 0x07}, dims: []int{2}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			small := do(f.Bitcast(x[0], dtypes.Int4))
			return do(f.Bitcast(do(f.Neg(do(f.Neg(small)))), dtypes.Uint8))
		}, []uint8{0x8F, 0x07}},
	{"branches within branches", []tensor{{flat: []bool{true}}, {flat: []float32{3}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			outer := closure(t, f, func(c compute.Function) []compute.Value {
				double := do(c.Add(x[1], x[1]))
				out, err := c.If(do(c.LogicalNot(x[0])),
					closure(t, c, func(compute.Function) []compute.Value { return []compute.Value{x[1]} }),
					closure(t, c, func(d compute.Function) []compute.Value {
						return []compute.Value{do(d.ReduceSum(do(d.Reshape(double, 1))))}
					}))
				require.NoError(t, err)
				return out
			})
			out, err := f.If(x[0], outer,
				closure(t, f, func(c compute.Function) []compute.Value { return []compute.Value{do(c.Neg(x[1]))} }))
			require.NoError(t, err)
			return out[0]
		}, []float32{6}},
	{"integers by 0 that the compiler knows", []tensor{{flat: []int32{7}}},
		func(t testing.TB, f compute.Function, x []compute.Value) compute.Value {
			do := must(t)
			five, zero := do(f.Constant([]int32{5})), do(f.Constant([]int32{0}))
			parts := []compute.Value{
				do(f.Div(five, zero)), do(f.Rem(five, zero)),
				do(f.Div(five, do(f.Mul(x[0], zero)))), do(f.Rem(five, do(f.Sub(x[0], x[0])))),
				do(f.Div(x[0], do(f.Div(zero, zero)))),
			}
			one := do(f.Constant([]int32{1}))
			state := []compute.Value{zero, zero, one} // of a loop that runs once, which the compiler unrolls
			cond := closure(t, f, func(c compute.Function) []compute.Value {
				v := loopState(t, c)
				return []compute.Value{do(c.LessThan(v[0], one))}
			})
			body := closure(t, f, func(c compute.Function) []compute.Value {
				v := loopState(t, c)
				return []compute.Value{do(c.Add(v[0], one)), v[1], do(c.Div(five, v[1]))}
			})
			out, err := f.While(cond, body, state...)
			require.NoError(t, err)
			parts = append(parts, out[2])
			for i, p := range parts {
				parts[i] = do(f.Reshape(p, 1))
			}
			parts = append(parts, do(f.Div(five, do(f.Constant([]int32{0, 2, 0}, 3)))))
			for _, flat := range []any{[]int8{0}, []int16{0}, []int64{0}, []uint8{0}, []uint16{0}, []uint32{0}, []uint64{0}} {
				by := do(f.Constant(flat))
				parts = append(parts, do(f.Reshape(do(f.ConvertDType(do(f.Div(by, by)), dtypes.Int32)), 1)))
			}
			return do(f.Concatenate(0, parts...))
		}, []int32{-1, 5, -1, 5, -7, -1, -1, 2, -1, -1, -1, -1, 255, 65535, -1, -1}},
}

// loopState gives a closure the three integers that the loop of a test carries.
func loopState(t testing.TB, c compute.Function) []compute.Value {
	t.Helper()
	v := make([]compute.Value, 3)
	for i := range v {
		v[i] = must(t)(c.Parameter(string(rune('p'+i)), shapes.Make(dtypes.Int32), nil))
	}
	return v
}

func TestOps(t *testing.T) {
	b := newBackend(t, alone)
	for _, test := range ops {
		t.Run(test.name, func(t *testing.T) {
			got := runOf(t, b, test.in, func(f compute.Function, x []compute.Value) []compute.Value {
				return []compute.Value{test.body(t, f, x)}
			})
			if want, ok := test.want.([]float32); ok {
				assertFloats(t, want, got[0].([]float32))
				return
			}
			assert.Equal(t, test.want, got[0])
		})
	}
}

func assertFloats(t *testing.T, want, got []float32) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		switch w := float64(want[i]); {
		case math.IsInf(w, 0) || w == 0:
			assert.Equal(t, want[i], got[i], "element %d", i)
		default:
			assert.InEpsilon(t, w, float64(got[i]), 1e-6, "element %d", i)
		}
	}
}

// halves is n times the same bfloat16.
func halves(n int, v float32) []bfloat16.BFloat16 {
	out := make([]bfloat16.BFloat16, n)
	for i := range out {
		out[i] = bfloat16.FromFloat32(v)
	}
	return out
}
