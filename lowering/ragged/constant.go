package ragged

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/go-xla/stablehlo"
)

// function is how a constant depends on the sizes: factor times the product of sizes[i] to
// the power powers[i], plus offset.
type function struct {
	factor, offset float64
	powers         []float64
}

// elements is the text between dense< and > of a constant.
func elements(s *stablehlo.Statement) string {
	text := attribute(s, "value")
	text = strings.TrimPrefix(text, "dense<")
	if at := strings.LastIndex(text, "> : "); at >= 0 {
		text = text[:at]
	}
	return text
}

// splat reports whether the text is one number for all elements.
func splat(text string) bool {
	return text != "" && text[0] != '[' && text[0] != '"' && text[0] != '('
}

// scalar is the number that a text stands for.
func scalar(text string, dtype dtypes.DType) (float64, bool) {
	switch {
	case text == "true":
		return 1, true
	case text == "false":
		return 0, true
	case strings.HasPrefix(text, "0x"):
		bits, err := strconv.ParseUint(text[2:], 16, 64)
		return ofBits(bits, dtype), err == nil
	}
	x, err := strconv.ParseFloat(text, 64)
	return x, err == nil
}

func ofBits(bits uint64, dtype dtypes.DType) float64 {
	switch dtype {
	case dtypes.Float64:
		return math.Float64frombits(bits)
	case dtypes.Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case dtypes.Float16:
		return float64(float16.Float16(bits).Float32())
	case dtypes.BFloat16:
		return float64(bfloat16.BFloat16(bits).Float32())
	}
	if shift := 64 - dtype.Bits(); !dtype.IsUnsigned() && dtype != dtypes.Bool && shift > 0 {
		return float64(int64(bits<<shift) >> shift)
	}
	return float64(bits)
}

// flat are a constant's elements in row-major order; false for what is not decoded.
func flat(text string, dtype dtypes.DType, size int) ([]float64, bool) {
	if text == "" {
		return nil, size == 0
	}
	all := make([]float64, 0, size)
	if splat(text) {
		x, ok := scalar(text, dtype)
		for range size {
			all = append(all, x)
		}
		return all, ok
	}
	if digits, ok := strings.CutPrefix(text, `"0x`); ok {
		data, err := hex.DecodeString(strings.TrimSuffix(digits, `"`))
		width := dtype.Size()
		if err != nil || dtype.IsComplex() || width == 0 || len(data) != size*width {
			return nil, false
		}
		for ; len(data) > 0; data = data[width:] {
			var word [8]byte
			copy(word[:], data[:width])
			all = append(all, ofBits(binary.LittleEndian.Uint64(word[:]), dtype))
		}
		return all, true
	}
	for _, part := range strings.Split(strings.NewReplacer("[", "", "]", "").Replace(text), ",") {
		x, ok := scalar(strings.TrimSpace(part), dtype)
		if !ok {
			return nil, false
		}
		all = append(all, x)
	}
	return all, len(all) == size
}

// sameNumber compares numbers, NaN being equal to itself.
func sameNumber(a, b float64) bool { return a == b || a != a && b != b }

// tolerance is how far a constant may be from its function, of itself: its dtype's rounding.
func tolerance(dtype dtypes.DType) float64 {
	switch dtype {
	case dtypes.BFloat16:
		return 1. / 128
	case dtypes.Float16:
		return 1. / 1024
	case dtypes.Float32:
		return 1. / (1 << 22)
	}
	return 1. / (1 << 50)
}

func near(a, b, tolerance float64) bool {
	return math.Abs(a-b) <= tolerance*math.Max(math.Abs(a), math.Abs(b))
}

// powers are tried in this order.
var powers = []float64{1, -1, 2, -2, 0.5, -0.5}

// fit finds the function of the sizes that has the values. The first program's sizes are the
// padded ones; each other differs from it in one size.
func fit(values []float64, sizes [][]int, dtype dtypes.DType) (function, bool) {
	f := function{factor: values[0], powers: make([]float64, len(sizes[0]))}
	eps := tolerance(dtype)
	several := 0
	for i, padded := range sizes[0] {
		var at, is []float64 // the sizes and values that vary
		for k := 1; k < len(values); k++ {
			if sizes[k][i] != padded {
				at, is = append(at, float64(sizes[k][i])), append(is, values[k])
			}
		}
		constant := true
		for _, v := range is {
			constant = constant && sameNumber(v, values[0])
		}
		if constant {
			continue
		}
		several++
		found := false
		for _, p := range powers {
			ok := values[0] != 0
			for k, v := range is {
				ok = ok && near(v, values[0]*math.Pow(at[k]/float64(padded), p), eps)
			}
			if ok {
				f.powers[i], f.factor, found = p, f.factor/math.Pow(float64(padded), p), true
				break
			}
		}
		for _, p := range powers[:2] {
			if found || several > 1 || len(is) < 2 {
				break
			}
			first := math.Pow(float64(padded), p)
			factor := (is[0] - values[0]) / (math.Pow(at[0], p) - first)
			offset := values[0] - factor*first
			if scale := math.Abs(offset) + math.Abs(is[1]); math.Abs(factor*math.Pow(at[1], p)+offset-is[1]) <= eps*scale {
				f.powers[i], f.factor, f.offset, found = p, factor, offset, true
			}
		}
		if !found || several > 1 && f.offset != 0 {
			return f, false
		}
	}
	// Rounded constants had whole numbers, or their reciprocals, for factors.
	if whole := math.Round(f.factor); whole != 0 && near(f.factor, whole, 4*eps) {
		f.factor = whole
	} else if whole := math.Round(1 / f.factor); whole != 0 && near(1/f.factor, whole, 4*eps) {
		f.factor = 1 / whole
	}
	if whole := math.Round(f.offset); near(f.offset, whole, 4*eps) {
		f.offset = whole
	}
	if dtype.IsInt() {
		for _, p := range f.powers {
			if p < 0 || p != math.Trunc(p) {
				return f, false
			}
		}
		if f.factor != math.Trunc(f.factor) || f.offset != math.Trunc(f.offset) {
			return f, false
		}
	}
	return f, dtype.IsInt() || dtype.IsFloat()
}
