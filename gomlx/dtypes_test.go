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

// TestEveryDTypeTravels sends values of each claimed dtype to the device, through a program as
// parameter and as constant, and back.
func TestEveryDTypeTravels(t *testing.T) {
	b := newBackend(t, alone)
	values := map[dtypes.DType]tensor{
		dtypes.Bool:       {flat: []bool{true, false, true}},
		dtypes.Int8:       {flat: []int8{-128, 0, 127}},
		dtypes.Int16:      {flat: []int16{-32768, 0, 32767}},
		dtypes.Int32:      {flat: []int32{math.MinInt32, 0, math.MaxInt32}},
		dtypes.Int64:      {flat: []int64{math.MinInt64, 0, math.MaxInt64}},
		dtypes.Uint8:      {flat: []uint8{0, 1, 255}},
		dtypes.Uint16:     {flat: []uint16{0, 1, 65535}},
		dtypes.Uint32:     {flat: []uint32{0, 1, math.MaxUint32}},
		dtypes.Uint64:     {flat: []uint64{0, 1, math.MaxUint64}},
		dtypes.Float16:    {flat: []float16.Float16{float16.FromFloat32(1.5), 0x7C00, 0x8000}},
		dtypes.BFloat16:   {flat: []bfloat16.BFloat16{bfloat16.FromFloat32(-2.5), 0x7F80, 1}},
		dtypes.Float32:    {flat: []float32{math.Pi, -inf, math.SmallestNonzeroFloat32}},
		dtypes.Float64:    {flat: []float64{math.Pi, math.Inf(1), math.SmallestNonzeroFloat64}},
		dtypes.Complex64:  {flat: []complex64{1 - 2i, complex(inf, 0), 0}},
		dtypes.Complex128: {flat: []complex128{1 - 2i, complex(0, math.Inf(-1)), 0}},
		dtypes.Int4:       {flat: []uint8{0x8F, 0x07}, dtype: dtypes.Int4},  // -1, -8, 7
		dtypes.Uint4:      {flat: []uint8{0x8F, 0x07}, dtype: dtypes.Uint4}, // 15, 8, 7
		dtypes.Int2:       {flat: []uint8{0b011011}, dtype: dtypes.Int2},    // -1, -2, 1
		dtypes.Uint2:      {flat: []uint8{0b011011}, dtype: dtypes.Uint2},   // 3, 2, 1
	}
	for d := range b.Capabilities().DTypes {
		t.Run(d.String(), func(t *testing.T) {
			x, ok := values[d]
			require.True(t, ok, "a claimed dtype without a test")
			x.dims = []int{3}
			out := runOf(t, b, []tensor{x}, func(f compute.Function, in []compute.Value) []compute.Value {
				out := []compute.Value{in[0], must(t)(f.Reshape(in[0], 3, 1))}
				if !d.IsPacked() {
					out = append(out, must(t)(f.Constant(x.flat, 3)))
				}
				return out
			})
			for i, got := range out {
				assert.Equal(t, x.flat, got, "result %d", i)
			}
		})
	}
}

// TestSmallIntegersAreSignExtended checks that packed values are converted to the numbers that they
// represent.
func TestSmallIntegersAreSignExtended(t *testing.T) {
	b := newBackend(t, alone)
	for _, test := range []struct {
		dtype dtypes.DType
		bytes []uint8
		want  []int32
	}{
		{dtypes.Int4, []uint8{0x8F, 0x07}, []int32{-1, -8, 7}},
		{dtypes.Uint4, []uint8{0x8F, 0x07}, []int32{15, 8, 7}},
		{dtypes.Int2, []uint8{0b011011}, []int32{-1, -2, 1}},
		{dtypes.Uint2, []uint8{0b011011}, []int32{3, 2, 1}},
	} {
		if !b.Capabilities().DTypes[test.dtype] {
			continue
		}
		out := runOf(t, b, []tensor{{flat: test.bytes, dims: []int{3}, dtype: test.dtype}},
			func(f compute.Function, x []compute.Value) []compute.Value {
				return []compute.Value{must(t)(f.ConvertDType(x[0], dtypes.Int32))}
			})
		assert.Equal(t, test.want, out[0], "%s", test.dtype)
	}
}

// TestLongConstantsKeepTheirBits checks the hexadecimal form of constants.
func TestLongConstantsKeepTheirBits(t *testing.T) {
	b := newBackend(t, alone)
	f32s, i64s, c64s, bools := make([]float32, 100), make([]int64, 100), make([]complex64, 100), make([]bool, 100)
	for i := range f32s {
		f32s[i] = float32(i) / 3
		i64s[i] = int64(i) << 40
		c64s[i] = complex(f32s[i], -f32s[i])
		bools[i] = i%3 == 0
	}
	out := runOf(t, b, nil, func(f compute.Function, _ []compute.Value) []compute.Value {
		do := must(t)
		return []compute.Value{
			do(f.Constant(f32s, 4, 25)), do(f.Constant(i64s, 100)), do(f.Constant(c64s, 100)), do(f.Constant(bools, 100)),
		}
	})
	assert.Equal(t, []any{f32s, i64s, c64s, bools}, out)
}

func TestUnusedParametersScalarsAndEmptyTensors(t *testing.T) {
	b := newBackend(t, alone)
	out := runOf(t, b, []tensor{
		{flat: []float32{1, 2}, dims: []int{2}}, // unused
		{flat: []float64{7}},
		{flat: []int32{}, dims: []int{3, 0}},
	}, func(_ compute.Function, x []compute.Value) []compute.Value {
		return []compute.Value{x[1], x[2], x[1]}
	})
	assert.Equal(t, []any{[]float64{7}, []int32{}, []float64{7}}, out)
}
