package lowering_test

import (
	"math"
	"strconv"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering"
)

type value = compute.Value

// limited lowers a function with one argument.
func limited(t *testing.T, o lowering.Options, shape shapes.Shape, body func(f compute.Function,
	x value) value) *lowering.Program {
	t.Helper()
	return program(t, o,
		func(f compute.Function) []value { return []value{body(f, must(t)(f.Parameter("x", shape, nil)))} })
}

// A program that would abort a compiler's process returns an error before compilation.
func TestProgramsThatEndCompilersAreRefused(t *testing.T) {
	zero := func(f compute.Function) value { return must(t)(f.Constant([]float32{0})) }
	for name, c := range map[string]struct {
		shape shapes.Shape
		body  func(f compute.Function, x value) value
		says  string
	}{
		"a negation": {f32(4), func(f compute.Function, x value) value { return must(t)(f.Neg(x)) }, ""},
		"a padding that is cropped": {f32(4), func(f compute.Function, x value) value {
			return must(t)(f.Pad(x, zero(f), compute.PadAxis{Start: 1e12, End: -1e12}))
		}, ""},
		"a padding": {f32(4), func(f compute.Function, x value) value {
			return must(t)(f.Pad(x, zero(f), compute.PadAxis{Start: math.MaxInt64 / 2, End: -math.MaxInt64 / 2}))
		}, "stablehlo.pad: it pads dimension 0 of tensor<4xf32>"},
		"a padding of two dimensions": {f32(4, 4), func(f compute.Function, x value) value {
			return must(t)(f.Pad(x, zero(f), compute.PadAxis{Start: 1 << 40, End: -1 << 40}, compute.PadAxis{Start: 1 << 40,
				End: -1 << 40}))
		}, "it pads dimension 1"},
		"a padding between elements": {f32(4), func(f compute.Function, x value) value {
			return must(t)(f.Pad(x, zero(f), compute.PadAxis{End: -3 << 60, Interior: 1 << 60}))
		}, "between elements"},
		"a padded window": {f32(4), func(f compute.Function, x value) value {
			return must(t)(f.ReduceWindow(x, compute.ReduceOpSum, []int{1}, []int{1 << 59}, nil, nil, [][2]int{{1 << 60, 0}}))
		}, "stablehlo.reduce_window: it pads"},
		"a dilated convolution": {f32(1, 1, 4), func(f compute.Function, x value) value {
			axes := compute.ConvolveAxesConfig{InputBatch: 0, InputChannels: 1, InputSpatial: []int{2}, KernelInputChannels: 0,
				KernelOutputChannels: 1, KernelSpatial: []int{2},
				OutputBatch: 0, OutputChannels: 1, OutputSpatial: []int{2}}
			return must(t)(f.ConvGeneral(x, must(t)(f.Reshape(must(t)(f.Constant([]float32{1})), 1, 1, 1)), axes, nil, nil,
				[]int{1 << 25}, nil, 1, 1))
		}, "it dilates its operand"},
		"a tensor beyond memory": {f32(), func(f compute.Function, x value) value {
			return must(t)(f.BroadcastInDim(x, f32(1<<40, 1<<40), nil))
		}, "more elements than memory"},
		"an argument beyond memory": {f32(1<<31, 1<<31), func(f compute.Function, x value) value { return x },
			"parameter x: tensor<2147483648x2147483648xf32> has more elements"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := limited(t, lowering.Options{}, c.shape, c.body).Text()
			if c.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.says)
			assert.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
		})
	}
}

// libtpu's compiler aborts the process when it divides tensors of Complex128. Other compilers do
// not.
func TestComplex128IsRefusedWhereATPUProgramIsDivided(t *testing.T) {
	for _, c := range []struct {
		target     lowering.Target
		partitions int
		refused    bool
	}{{lowering.TargetTPU, 2, true}, {lowering.TargetTPU, 1, false}, {lowering.TargetCPU, 2, false}} {
		p := limited(t, lowering.Options{Target: c.target}, shapes.Make(dtypes.Complex128, 2), func(f compute.Function,
			x value) value {
			return must(t)(f.Neg(x))
		})
		if err := p.Check(c.partitions); c.refused {
			assert.ErrorContains(t, err, "use Complex64")
		} else {
			assert.NoError(t, err)
		}
	}
}

func TestClosuresNestOnlySoDeep(t *testing.T) {
	nested := func(depth int) *lowering.Program {
		return limited(t, lowering.Options{}, shapes.Make(dtypes.Bool), func(f compute.Function, x value) value {
			var branch func(f compute.Function, depth int) value
			branch = func(f compute.Function, depth int) value {
				if depth == 0 {
					return must(t)(f.Constant([]float32{1}))
				}
				inside := closure(t, f, func(c compute.Function) []value { return []value{branch(c, depth-1)} })
				other := closure(t, f, func(c compute.Function) []value { return []value{must(t)(c.Constant([]float32{2}))} })
				out, err := f.If(x, inside, other)
				require.NoError(t, err)
				return out[0]
			}
			return branch(f, depth)
		})
	}
	_, err := nested(100).Text()
	require.NoError(t, err)
	_, err = nested(130).Text()
	require.ErrorContains(t, err, "nested so deep")
}

// A chain of functions that each call the previous one twice is short in the text, but too large to
// inline.
func TestInlinedCallsAreBounded(t *testing.T) {
	b := lowering.New(lowering.Options{}).Builder("b")
	var last compute.Function
	for i := range 25 {
		f, err := b.NewFunction("f" + strconv.Itoa(i))
		require.NoError(t, err)
		x := must(t)(f.Parameter("x", f32(2), nil))
		for range 2 {
			if last == nil {
				break
			}
			if _, err = f.Call(last, x); err != nil {
				require.ErrorContains(t, err, "once they are inlined")
				assert.Equal(t, 20, i)
				return
			}
		}
		require.NoError(t, f.Return([]value{x}, nil))
		last = f
	}
	t.Fatal("all calls are taken")
}
