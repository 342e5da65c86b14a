package gomlx_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAnyNameOfAFunctionIsFine uses names of computations, parameters and functions that are
// invalid in MLIR.
func TestAnyNameOfAFunctionIsFine(t *testing.T) {
	b := newBackend(t, alone)
	for _, name := range []string{"", "main", "1", "1a", "a b", "/a/b", "日本", "%x", "\"", "x\ny", "true", "func",
		"arg0", "e"} {
		builder := b.Builder(name)
		do := must(t)
		s := shapes.Make(dtypes.Float32, 2)
		callee := builder.Main()
		if name != "main" {
			var err error
			callee, err = builder.NewFunction(name)
			require.NoError(t, err)
			v := do(callee.Parameter(name, s, nil))
			require.NoError(t, callee.Return([]compute.Value{do(callee.Add(v, do(callee.ReduceSum(v))))}, nil))
		}
		f := builder.Main()
		x := do(f.Parameter(name, s, nil))
		out := []compute.Value{do(f.ReduceMax(x))}
		if callee != f {
			called, err := f.Call(callee, x)
			require.NoError(t, err)
			out = called
		}
		require.NoError(t, f.Return(out, nil))
		exe, err := builder.Compile()
		require.NoError(t, err, "%q", name)
		got, err := exe.Execute([]compute.Buffer{put(t, b, tensor{flat: []float32{1, 2}, dims: []int{2}})}, nil, 0)
		require.NoError(t, err, "%q", name)
		if callee != f {
			assert.Equal(t, []float32{4, 5}, flatOf(t, got[0]))
		}
		names, _ := exe.Inputs()
		assert.Equal(t, []string{name}, names)
	}
}

func TestFunctionsWithoutParametersAreCalled(t *testing.T) {
	b := newBackend(t, alone)
	got := runOf(t, b, nil, func(f compute.Function, _ []compute.Value) []compute.Value {
		g, err := f.Builder().NewFunction("answer")
		require.NoError(t, err)
		require.NoError(t, g.Return([]compute.Value{must(t)(g.Constant([]int32{42}))}, nil))
		out, err := f.Call(g)
		require.NoError(t, err)
		return out
	})
	assert.Equal(t, []any{[]int32{42}}, got)
}

// TestBitsOfSmallIntegers goes from bytes and words to small integers and back, with parameters and
// with constants, which XLA folds by other code.
func TestBitsOfSmallIntegers(t *testing.T) {
	b := newBackend(t, alone)
	numbers := map[dtypes.DType][]int32{
		dtypes.Int4:  {-5, 1, -1, -8, 0, 7, 1, 0},
		dtypes.Uint4: {11, 1, 15, 8, 0, 7, 1, 0},
		dtypes.Int2:  {-1, -2, 1, 0, -1, -1, 0, -2, 0, 0, -1, 1, 1, 0, 0, 0},
		dtypes.Uint2: {3, 2, 1, 0, 3, 3, 0, 2, 0, 0, 3, 1, 1, 0, 0, 0},
	}
	bytes := []uint8{0x1B, 0x8F, 0x70, 0x01}
	for d, want := range numbers {
		for i, source := range []string{"parameter", "constant"} {
			t.Run(d.String()+" of a "+source, func(t *testing.T) {
				got := runOf(t, b, []tensor{{flat: bytes, dims: []int{4}}}, func(f compute.Function,
					x []compute.Value) []compute.Value {
					do := must(t)
					in := x[0]
					if i == 1 {
						in = do(f.Constant(bytes, 4))
					}
					word := do(f.Bitcast(in, dtypes.Uint32)) // a scalar
					small := do(f.Bitcast(in, d))
					signed, unsigned := dtypes.Int4, dtypes.Uint4
					if d.Bits() == 2 {
						signed, unsigned = dtypes.Int2, dtypes.Uint2
					}
					crumbs := do(f.Bitcast(small, dtypes.Uint2))
					if d.Bits() == 4 {
						crumbs = do(f.Bitcast(do(f.Bitcast(crumbs, d)), d)) // split, then joined again
					}
					return []compute.Value{
						do(f.ConvertDType(small, dtypes.Int32)),
						do(f.ConvertDType(do(f.Bitcast(word, d)), dtypes.Int32)),
						do(f.Bitcast(small, dtypes.Uint8)),
						do(f.Bitcast(do(f.Reshape(small, len(want))), dtypes.Uint32)),
						do(f.Bitcast(do(f.Bitcast(do(f.Bitcast(small, signed)), unsigned)), dtypes.Uint8)),
						do(f.Bitcast(crumbs, dtypes.Uint8)),
					}
				})
				assert.Equal(t, want, got[0], "of bytes")
				assert.Equal(t, want, got[1], "of a word")
				assert.Equal(t, bytes, got[2], "back to bytes")
				assert.Equal(t, []uint32{0x01708F1B}, got[3], "back to a word")
				assert.Equal(t, bytes, got[4], "by way of both signs")
				assert.Equal(t, bytes, got[5], "by way of the other size")
			})
		}
	}
}
