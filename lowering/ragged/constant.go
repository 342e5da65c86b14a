package ragged

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// sizeFunction expresses a constant as factor * product(sizes[i]^powers[i]) + offset.
type sizeFunction struct {
	factor, offset float64
	powers         []float64
}

const constantOp = "stablehlo.constant"

func floatFromBits(bits uint64, dtype dtypes.DType) float64 {
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

// flatElements returns the elements of a constant in row-major order. It returns false if an
// element is not a real number.
func flatElements(d *ir.Dense) ([]float64, bool) {
	size := 1
	for _, n := range d.Type.Dims {
		size *= n
	}
	switch dtype := d.Type.DType; {
	case d.Splat != nil:
		return slices.Repeat([]float64{d.Splat.Value}, size), d.Splat.HasValue
	case d.Bytes != nil:
		width := dtype.Size()
		if dtype.IsComplex() || width == 0 || len(d.Bytes) != size*width {
			return nil, false
		}
		all := make([]float64, 0, size)
		for data := d.Bytes; len(data) > 0; data = data[width:] {
			var word [8]byte
			copy(word[:], data[:width])
			all = append(all, floatFromBits(binary.LittleEndian.Uint64(word[:]), dtype))
		}
		return all, true
	}
	all := make([]float64, 0, size)
	for _, n := range d.Numbers {
		if !n.HasValue {
			return nil, false
		}
		all = append(all, n.Value)
	}
	return all, len(all) == size
}

// equalNumbers reports whether two numbers are equal or both are NaN.
func equalNumbers(a, b float64) bool { return a == b || a != a && b != b }

// tolerance returns the relative error that is allowed for numbers of a dtype.
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

func approxEqual(a, b, tolerance float64) bool {
	return math.Abs(a-b) <= tolerance*math.Max(math.Abs(a), math.Abs(b))
}

// candidatePowers are the exponents that fitSizeFunction tries, in order.
var candidatePowers = []float64{1, -1, 2, -2, 0.5, -0.5}

// fitSizeFunction finds a function that maps sizes[k] to values[k] for each program k. The first
// program has the padded sizes, and every other program differs in one size. fitSizeFunction
// returns false if there is no such function.
func fitSizeFunction(values []float64, sizes [][]int, dtype dtypes.DType) (sizeFunction, bool) {
	f := sizeFunction{factor: values[0], powers: make([]float64, len(sizes[0]))}
	eps := tolerance(dtype)
	varyingSizes := 0
	for i, padded := range sizes[0] {
		var otherSizes, otherValues []float64 // the varying size and the value, for each program
		for k := 1; k < len(values); k++ {
			if sizes[k][i] != padded {
				otherSizes, otherValues = append(otherSizes, float64(sizes[k][i])), append(otherValues, values[k])
			}
		}
		constant := true
		for _, v := range otherValues {
			constant = constant && equalNumbers(v, values[0])
		}
		if constant {
			continue
		}
		varyingSizes++
		found := false
		for _, p := range candidatePowers {
			ok := values[0] != 0
			for k, v := range otherValues {
				ok = ok && approxEqual(v, values[0]*math.Pow(otherSizes[k]/float64(padded), p), eps)
			}
			if ok {
				f.powers[i], f.factor, found = p, f.factor/math.Pow(float64(padded), p), true
				break
			}
		}
		for _, p := range candidatePowers[:2] {
			if found || varyingSizes > 1 || len(otherValues) < 2 {
				break
			}
			first := math.Pow(float64(padded), p)
			factor := (otherValues[0] - values[0]) / (math.Pow(otherSizes[0], p) - first)
			offset := values[0] - factor*first
			if scale := math.Abs(offset) + math.Abs(otherValues[1]); math.Abs(factor*math.Pow(otherSizes[1],
				p)+offset-otherValues[1]) <= eps*scale {
				f.powers[i], f.factor, f.offset, found = p, factor, offset, true
			}
		}
		if !found || varyingSizes > 1 && f.offset != 0 {
			return f, false
		}
	}
	// The factor of a rounded constant is an integer or the reciprocal of an integer.
	if rounded := math.Round(f.factor); rounded != 0 && approxEqual(f.factor, rounded, 4*eps) {
		f.factor = rounded
	} else if rounded := math.Round(1 / f.factor); rounded != 0 && approxEqual(1/f.factor, rounded, 4*eps) {
		f.factor = 1 / rounded
	}
	if rounded := math.Round(f.offset); approxEqual(f.offset, rounded, 4*eps) {
		f.offset = rounded
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
