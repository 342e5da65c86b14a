package lowering_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/lowering"
)

func TestWholeProgramText(t *testing.T) {
	got := lower(t, lowering.Options{}, func(f compute.Function) []compute.Value {
		do := must(t)
		x := do(f.Parameter("/hidden/weights", f32(2, 3), nil))
		sum := do(f.ReduceSum(x, 1))
		return []compute.Value{do(f.Mul(sum, do(f.Constant([]float32{0.5}))))}
	})
	assert.Equal(t, `module @test {
  func.func @main(%_hidden_weights: tensor<2x3xf32>) -> tensor<2xf32> {
    %1 = "stablehlo.constant"() { value = dense<0.0> : tensor<f32> } : () -> tensor<f32>
    %2 = "stablehlo.reduce"(%_hidden_weights, %1) ({
      ^reductionFn(%e: tensor<f32>, %e_1: tensor<f32>) :
          %0 = "stablehlo.add"(%e, %e_1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
          "stablehlo.return"(%0) : (tensor<f32>) -> ()
    }) { dimensions = array<i64: 1> } : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %3 = "stablehlo.constant"() { value = dense<5.0e-01> : tensor<f32> } : () -> tensor<f32>
    %4 = "stablehlo.broadcast_in_dim"(%3) { broadcast_dimensions = array<i64> } : (tensor<f32>) -> tensor<2xf32>
    %5 = "stablehlo.multiply"(%2, %4) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    "stablehlo.return"(%5) : (tensor<2xf32>) -> ()
  }
}
`, got)
}

func TestConstantsAreExactAndShort(t *testing.T) {
	ramp := make([]int32, 40)
	for i := range ramp {
		ramp[i] = int32(i)
	}
	flags := make([]bool, 20)
	flags[3] = true
	for _, test := range []struct {
		name string
		flat any
		dims []int
		want string
	}{
		{"scalar", []float32{0.1}, nil, "dense<1.0000000149011612e-01> : tensor<f32>"},
		{"double", []float64{math.Pi}, nil, "dense<3.141592653589793> : tensor<f64>"},
		{"nested lists", []int64{1, 2, 3, 4}, []int{2, 2}, "dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>"},
		{"equal elements are written once", []uint8{7, 7, 7, 7}, []int{4}, "dense<7> : tensor<4xui8>"},
		{"zero and negative zero differ", []float32{0, float32(math.Copysign(0, -1))}, []int{2},
			"dense<[0.0, -0.0]> : tensor<2xf32>"},
		{"infinity", []float32{float32(math.Inf(-1))}, nil, "dense<0xFF800000> : tensor<f32>"},
		{"not a number keeps its bits", []float64{math.Float64frombits(0x7FF8000000000123)}, nil,
			"dense<0x7FF8000000000123> : tensor<f64>"},
		{"bfloat16", []bfloat16.BFloat16{bfloat16.FromFloat32(1.5)}, nil, "dense<1.5> : tensor<bf16>"},
		{"complex", []complex64{complex(1, -2)}, nil, "dense<(1.0, -2.0)> : tensor<complex<f32>>"},
		{"extremes", []int64{math.MinInt64, math.MaxInt64}, []int{2},
			"dense<[-9223372036854775808, 9223372036854775807]> : tensor<2xi64>"},
		{"unsigned extreme", []uint64{math.MaxUint64}, nil, "dense<18446744073709551615> : tensor<ui64>"},
		{"no elements", []float32{}, []int{0, 3}, "dense<> : tensor<0x3xf32>"},
		{"many elements are written as bytes", ramp, []int{40}, `dense<"0x0000000001000000020000000300000004000000`},
		{"many booleans are not", flags, []int{20}, "dense<[false, false, false, true, "},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := lower(t, lowering.Options{}, func(f compute.Function) []compute.Value {
				return []compute.Value{must(t)(f.Constant(test.flat, test.dims...))}
			})
			assert.Contains(t, got, "value = "+test.want)
		})
	}
}

func TestPrecisionIsOnDotsAndConvolutions(t *testing.T) {
	for _, p := range []lowering.Precision{lowering.PrecisionDefault, lowering.PrecisionHigh, lowering.PrecisionHighest} {
		got := lower(t, lowering.Options{Precision: p}, func(f compute.Function) []compute.Value {
			do := must(t)
			x := do(f.Parameter("x", f32(2, 3, 3), nil))
			k := do(f.Parameter("k", f32(3, 3, 3), nil))
			conv := do(f.ConvGeneral(x, k, compute.ConvolveAxesConfig{
				InputBatch: 0, InputChannels: 1, InputSpatial: []int{2},
				KernelInputChannels: 0, KernelOutputChannels: 1, KernelSpatial: []int{2},
				OutputBatch: 0, OutputChannels: 1, OutputSpatial: []int{2},
			}, nil, nil, nil, nil, 1, 1))
			return []compute.Value{do(f.DotGeneral(conv, []int{2}, []int{0}, conv, []int{2}, []int{0},
				compute.DotGeneralConfig{}))}
		})
		want := "precision_config = [#stablehlo<precision " + p.String() + ">, #stablehlo<precision " + p.String() + ">]"
		assert.Equal(t, 2, count(got, want), got)
	}
}

func TestMixedPrecisionDot(t *testing.T) {
	dot := func(in dtypes.DType, config compute.DotGeneralConfig, target lowering.Target) string {
		return lower(t, lowering.Options{Target: target}, func(f compute.Function) []compute.Value {
			do := must(t)
			x := do(f.Parameter("x", shapes.Make(in, 4, 4), nil))
			y := do(f.Parameter("y", shapes.Make(in, 4, 4), nil))
			return []compute.Value{do(f.DotGeneral(x, []int{1}, nil, y, []int{0}, nil, config))}
		})
	}
	accumulate := compute.DotGeneralConfig{AccumulatorDType: dtypes.Float32}

	got := dot(dtypes.BFloat16, accumulate, lowering.TargetTPU)
	assert.Contains(t, got, "(tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xbf16>",
		"the result keeps the operands' dtype")
	assert.NotContains(t, got, "optimization_barrier")
	assert.NotContains(t, got, "f32")

	got = dot(dtypes.BFloat16, compute.DotGeneralConfig{AccumulatorDType: dtypes.Float32, OutputDType: dtypes.Float32},
		lowering.TargetTPU)
	assert.Contains(t, got, "(tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xf32>", "the dot itself widens")
	assert.NotContains(t, got, "stablehlo.convert")

	got = dot(dtypes.BFloat16, compute.DotGeneralConfig{AccumulatorDType: dtypes.Float64}, lowering.TargetTPU)
	assert.Contains(t, got, "(tensor<4x4xbf16>, tensor<4x4xbf16>) -> tensor<4x4xf64>",
		"more than what compilers keep sums in")

	assert.Contains(t, dot(dtypes.BFloat16, accumulate, lowering.TargetCPU), "optimization_barrier")
	assert.NotContains(t, dot(dtypes.Float32, accumulate, lowering.TargetCPU), "optimization_barrier")

	got = dot(dtypes.Int8, compute.DotGeneralConfig{OutputDType: dtypes.Int32}, lowering.TargetTPU)
	assert.Contains(t, got, "(tensor<4x4xi8>, tensor<4x4xi8>) -> tensor<4x4xi32>", "a wider output is the accumulator")

	got = dot(dtypes.Int8, compute.DotGeneralConfig{OutputDType: dtypes.Float32, AccumulatorDType: dtypes.Float32},
		lowering.TargetTPU)
	assert.Contains(t, got, "(tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>", "another kind is converted first")
}

func TestSingleOperandBarrierIsLeftOutForCPUOnly(t *testing.T) {
	body := func(f compute.Function) []compute.Value {
		do := must(t)
		x := do(f.Parameter("x", f32(2), nil))
		out, err := f.OptimizationBarrier(do(f.Neg(x)))
		assert.NoError(t, err)
		return out
	}
	assert.NotContains(t, lower(t, lowering.Options{Target: lowering.TargetCPU}, body), "optimization_barrier")
	assert.Contains(t, lower(t, lowering.Options{Target: lowering.TargetTPU}, body), "optimization_barrier")
}

func TestAllReduceIsOnePerTensorInOrder(t *testing.T) {
	body := func(f compute.Function) []compute.Value {
		do := must(t)
		var in []compute.Value
		for i, d := range []dtypes.DType{dtypes.Float32, dtypes.Int32, dtypes.Float32, dtypes.BFloat16} {
			in = append(in, do(f.Parameter(string(rune('a'+i)), shapes.Make(d, 2), nil)))
		}
		out, err := f.AllReduce(in, compute.ReduceOpSum, [][]int{{0, 1}})
		assert.NoError(t, err)
		return out
	}
	first := lower(t, lowering.Options{}, body)
	assert.Equal(t, 4, count(first, `"stablehlo.all_reduce"(`))
	for _, operand := range []string{"%a", "%b", "%c", "%d"} {
		assert.Contains(t, first, `"stablehlo.all_reduce"(`+operand+`)`)
	}
	for range 20 {
		assert.Equal(t, first, lower(t, lowering.Options{}, body))
	}
}

func TestArgumentNamesNeverClash(t *testing.T) {
	got := lower(t, lowering.Options{}, func(f compute.Function) []compute.Value {
		do := must(t)
		var sum compute.Value
		for _, name := range []string{"e", "a.b", "a/b", "3", "arg0", "", "p_3"} {
			x := do(f.Parameter(name, f32(2), nil))
			if sum == nil {
				sum = x
			}
			sum = do(f.Add(sum, x))
		}
		return []compute.Value{do(f.ReduceSum(sum))}
	})
	assert.Contains(t, got, "@main(%e: tensor<2xf32>, %a_b: tensor<2xf32>, %a_b_1: tensor<2xf32>, %p_3: tensor<2xf32>, "+
		"%p_arg0: tensor<2xf32>, %p_: tensor<2xf32>, %p_3_1: tensor<2xf32>)")
	assert.Contains(t, got, "^reductionFn(%e_1: tensor<f32>, %e_2: tensor<f32>)")
}

func TestPublicDistributionIsWritten(t *testing.T) {
	b := lowering.New(lowering.Options{NumDevices: 8}).Builder("sharded")
	assert.NoError(t, b.DistributedAutoSharding(compute.Mesh{Name: "mesh", AxesNames: []string{"x", "y"},
		AxesSizes: []int{2, 4}}))
	assert.NoError(t, b.DeviceAssignment(0, 1, 2, 3, 4, 5, 6, 7))
	spec := &compute.ShardingSpec{Mesh: "mesh", Axes: [][]string{{"x"}, {}}}
	x := must(t)(b.Main().Parameter("x", f32(8, 4), spec))
	assert.NoError(t, b.Main().Return([]compute.Value{x}, []*compute.ShardingSpec{spec}))
	exe, err := b.Compile()
	assert.NoError(t, err)
	p := exe.(*lowering.Executable).Program()
	got := string(text(t, p))
	assert.Contains(t, got, `sdy.mesh @mesh = <["x"=2, "y"=4]>`)
	assert.Contains(t, got, `sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>`)
	assert.Equal(t, []int{1, 8, 8}, []int{p.Replicas, p.Partitions, len(p.Devices)})
}

func TestSortsForTheCPUAreStable(t *testing.T) {
	body := func(stable bool) func(f compute.Function) []compute.Value {
		return func(f compute.Function) []compute.Value {
			x := must(t)(f.Parameter("x", f32(2), nil))
			out, err := f.Sort(closure(t, f, func(c compute.Function) []compute.Value {
				return []compute.Value{must(t)(c.LessThan(must(t)(c.Parameter("l", f32(), nil)),
					must(t)(c.Parameter("r", f32(), nil))))}
			}), 0, stable, x)
			assert.NoError(t, err)
			return out
		}
	}
	assert.Contains(t, lower(t, lowering.Options{Target: lowering.TargetCPU}, body(false)), "is_stable = true")
	assert.Contains(t, lower(t, lowering.Options{Target: lowering.TargetTPU}, body(false)), "is_stable = false")
	assert.Contains(t, lower(t, lowering.Options{Target: lowering.TargetTPU}, body(true)), "is_stable = true")
}

// TestTheCPUTakesTheLargestOfIntegers checks that no reduction computes a maximum of float32, which
// the CPU compiler does not vectorize.
func TestTheCPUTakesTheLargestOfIntegers(t *testing.T) {
	for target, want := range map[lowering.Target]string{lowering.TargetCPU: "i32", lowering.TargetTPU: "f32"} {
		got := lower(t, lowering.Options{Target: target}, func(f compute.Function) []compute.Value {
			do := must(t)
			x := do(f.Parameter("x", f32(2, 3), nil))
			return []compute.Value{do(f.ReduceMax(x, 1)), do(f.ReduceMin(x))}
		})
		for _, op := range []string{"maximum", "minimum"} {
			assert.Regexp(t, `stablehlo\.`+op+`"\(%e[_0-9]*, %e[_0-9]*\) : \(tensor<`+want+`>`, got, target)
		}
	}
}
