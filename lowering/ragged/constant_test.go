package ragged

import (
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

var twoSizes = [][]int{{4, 6}, {8, 6}, {20, 6}, {4, 12}, {4, 30}}

func TestConstantsThatAreFunctionsOfASize(t *testing.T) {
	for name, c := range map[string]struct {
		f     func(n, m float64) float64
		dtype dtypes.DType
		want  sizeFunction
	}{
		"size": {func(n, _ float64) float64 { return n }, dtypes.Int32, sizeFunction{1, 0, []float64{1, 0}}},
		"elements": {func(n, _ float64) float64 { return 3 * n }, dtypes.Float32,
			sizeFunction{3, 0, []float64{1, 0}}},
		"mean": {func(n, _ float64) float64 { return float64(float32(1 / n)) }, dtypes.Float32,
			sizeFunction{1, 0, []float64{-1, 0}}},
		"mean of elements": {func(n, _ float64) float64 { return float64(float32(1 / (3 * n))) }, dtypes.Float32,
			sizeFunction{1. / 3, 0, []float64{-1, 0}}},
		"mean of all": {func(n, m float64) float64 { return float64(float32(1 / (n * m))) }, dtypes.Float32,
			sizeFunction{1, 0, []float64{-1, -1}}},
		"last": {func(n, _ float64) float64 { return n - 1 }, dtypes.Int32,
			sizeFunction{1, -1, []float64{1, 0}}},
		"root": {func(n, _ float64) float64 { return float64(float32(1 / math.Sqrt(n))) }, dtypes.Float32,
			sizeFunction{1, 0, []float64{-0.5, 0}}},
		"squared": {func(n, _ float64) float64 { return n * n }, dtypes.Float64,
			sizeFunction{1, 0, []float64{2, 0}}},
		"none of the sizes": {func(_, _ float64) float64 { return 8 }, dtypes.Float32, sizeFunction{8, 0, []float64{0, 0}}},
	} {
		var values []float64
		for _, sizes := range twoSizes {
			values = append(values, c.f(float64(sizes[0]), float64(sizes[1])))
		}
		f, ok := fitSizeFunction(values, twoSizes, c.dtype)
		require.True(t, ok, name)
		assert.Equal(t, c.want, f, name)
	}
	for name, f := range map[string]func(n, m float64) float64{
		"logarithm": func(n, _ float64) float64 { return math.Log(n) },
		"rounded":   func(n, _ float64) float64 { return math.Floor(n / 3) },
		"two sums":  func(n, m float64) float64 { return n + m },
		"a step":    func(n, _ float64) float64 { return max(n, 10) },
		"half":      func(n, _ float64) float64 { return n / 8 },
	} {
		var values []float64
		for _, sizes := range twoSizes {
			values = append(values, f(float64(sizes[0]), float64(sizes[1])))
		}
		_, ok := fitSizeFunction(values, twoSizes, dtypes.Int32)
		assert.False(t, ok, name)
	}
}

func TestDimensionsFollowTheirSize(t *testing.T) {
	dims, at := variantDims{{4, 6, 12, 7}, {8, 6, 24, 7}, {20, 6, 60, 7}, {4, 12, 12, 7},
		{4, 30, 12, 7}}.sizeDependencies(twoSizes)
	assert.Equal(t, -1, at)
	assert.Equal(t, []Dim{{0, 1}, {1, 1}, {0, 3}, {}}, dims)
	_, at = variantDims{{7, 24}, {7, 48}, {7, 120}, {7, 48}, {7, 120}}.sizeDependencies(twoSizes)
	assert.Equal(t, 1, at, "a product of two sizes")
	_, at = variantDims{{5}, {9}, {21}, {5}, {5}}.sizeDependencies(twoSizes)
	assert.Equal(t, 0, at, "one more than a size")
}

func TestElementsOfConstants(t *testing.T) {
	one := ir.Float("1.5", 1.5)
	for name, c := range map[string]struct {
		of   ir.Dense
		want []float64
	}{
		"one number": {ir.Dense{Type: ir.TensorType(dtypes.Float32, 2), Splat: &one}, []float64{1.5, 1.5}},
		"a list": {ir.Dense{Type: ir.TensorType(dtypes.Int32, 2), Numbers: []ir.Number{ir.Integer(1), ir.Integer(-2)}},
			[]float64{1, -2}},
		"bytes": {ir.Dense{Type: ir.TensorType(dtypes.Float32, 2), Bytes: []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0x40}},
			[]float64{1, 2}},
		"signed":  {ir.Dense{Type: ir.TensorType(dtypes.Int16, 2), Bytes: []byte{0xff, 0xff, 2, 0}}, []float64{-1, 2}},
		"nothing": {ir.Dense{Type: ir.TensorType(dtypes.Int16, 0)}, []float64{}},
	} {
		got, ok := flatElements(&c.of)
		assert.True(t, ok, name)
		assert.Equal(t, c.want, got, name)
	}
	_, ok := flatElements(&ir.Dense{Type: ir.TensorType(dtypes.Complex64, 1),
		Numbers: []ir.Number{ir.Zero(dtypes.Complex64)}})
	assert.False(t, ok)
}
