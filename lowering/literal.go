package lowering

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// inlineElements is the maximum number of elements of a constant that is written as decimal
// numbers. A larger constant is written as hexadecimal bytes, which are exact, shorter and faster
// to parse.
const inlineElements = 16

func addConstant(fn *stablehlo.Function, value *ir.Dense, shape xshapes.Shape) (*stablehlo.Value, error) {
	v, err := fn.ConstantFromFlatAndShape(nil, shape)
	if err != nil {
		return nil, err
	}
	value.Type = irType(shape)
	fn.Statements[len(fn.Statements)-1].Attributes[ir.ValueKey] = value
	return v, nil
}

// constantFromFlat converts a flat Go slice to a constant. It panics if the length does not match
// dims.
func constantFromFlat(flat any, dims []int) (*ir.Dense, xshapes.Shape) {
	value, dtype, length := constantElements(flat)
	size := 1
	for axis, dim := range dims {
		if dim < 0 {
			panic(fmt.Errorf("dimension %d of axis %d is negative", dim, axis))
		}
		size *= dim
	}
	if size != length {
		panic(fmt.Errorf("%d values for dimensions %v, which hold %d", length, dims, size))
	}
	return value, xshapes.Make(dtype, dims...)
}

// constantElements converts a slice of any supported Go type to a constant. It panics for other
// types.
func constantElements(flat any) (value *ir.Dense, dtype dtypes.DType, length int) {
	switch s := flat.(type) {
	case nil:
		panic(errors.New("the flat slice is nil"))
	case []bool:
		return denseOf(s, boolNumber), dtypes.Bool, len(s)
	case []int8:
		return denseOf(s, signedNumber), dtypes.Int8, len(s)
	case []int16:
		return denseOf(s, signedNumber), dtypes.Int16, len(s)
	case []int32:
		return denseOf(s, signedNumber), dtypes.Int32, len(s)
	case []int64:
		return denseOf(s, signedNumber), dtypes.Int64, len(s)
	case []int:
		wide := make([]int64, len(s))
		for i, v := range s {
			wide[i] = int64(v)
		}
		return denseOf(wide, signedNumber), dtypes.Int64, len(s)
	case []uint8:
		return denseOf(s, unsignedNumber), dtypes.Uint8, len(s)
	case []uint16:
		return denseOf(s, unsignedNumber), dtypes.Uint16, len(s)
	case []uint32:
		return denseOf(s, unsignedNumber), dtypes.Uint32, len(s)
	case []uint64:
		return denseOf(s, unsignedNumber), dtypes.Uint64, len(s)
	case []float16.Float16:
		return denseOf(s, func(v float16.Float16) ir.Number { return floatNumber(float64(v.Float32()), uint64(v), 4) }),
			dtypes.Float16, len(s)
	case []bfloat16.BFloat16:
		return denseOf(s, func(v bfloat16.BFloat16) ir.Number { return floatNumber(float64(v.Float32()), uint64(v), 4) }),
			dtypes.BFloat16, len(s)
	case []float32:
		return denseOf(s, float32Number), dtypes.Float32, len(s)
	case []float64:
		return denseOf(s, float64Number), dtypes.Float64, len(s)
	case []complex64:
		return denseOf(s, func(v complex64) ir.Number {
			return complexNumber(float32Number(real(v)),
				float32Number(imag(v)))
		}), dtypes.Complex64, len(s)
	case []complex128:
		return denseOf(s, func(v complex128) ir.Number {
			return complexNumber(float64Number(real(v)),
				float64Number(imag(v)))
		}), dtypes.Complex128, len(s)
	}
	panic(fmt.Errorf("want a flat slice of a numeric type or bool, got %T", flat))
}

// denseOf converts a slice to a constant: one number if all elements have the same bits, a list of
// few numbers or of bools, and otherwise bytes in little-endian order.
func denseOf[T any](s []T, number func(T) ir.Number) *ir.Dense {
	if len(s) == 0 {
		return &ir.Dense{}
	}
	data := must(binary.Append(nil, binary.LittleEndian, s))
	if width := len(data) / len(s); bytes.Equal(data[width:], data[:len(data)-width]) {
		splat := number(s[0])
		return &ir.Dense{Splat: &splat}
	}
	if _, bools := any(s).([]bool); !bools && len(s) > inlineElements {
		return &ir.Dense{Bytes: data}
	}
	list := make([]ir.Number, len(s))
	for i, v := range s {
		list[i] = number(v)
	}
	return &ir.Dense{Numbers: list}
}

func boolNumber(v bool) ir.Number {
	n := ir.Number{Text: strconv.FormatBool(v), HasValue: true}
	if v {
		n.Value = 1
	}
	return n
}

func signedNumber[T int | int8 | int16 | int32 | int64](v T) ir.Number {
	return ir.Number{Text: strconv.FormatInt(int64(v), 10), Value: float64(v), HasValue: true}
}

func unsignedNumber[T uint8 | uint16 | uint32 | uint64](v T) ir.Number {
	return ir.Number{Text: strconv.FormatUint(uint64(v), 10), Value: float64(v), HasValue: true}
}

func floatNumber(v float64, bits uint64, digits int) ir.Number {
	return ir.Number{Text: floatText(v, bits, digits), Value: v, HasValue: true}
}

func float32Number(v float32) ir.Number {
	return floatNumber(float64(v), uint64(math.Float32bits(v)), 8)
}

func float64Number(v float64) ir.Number { return floatNumber(v, math.Float64bits(v), 16) }

func complexNumber(re, im ir.Number) ir.Number {
	return ir.Number{Text: "(" + re.Text + ", " + im.Text + ")"}
}

// floatText formats v exactly. MLIR requires a decimal point. NaN and infinity are written as their
// bits, with the given number of hexadecimal digits.
func floatText(v float64, bits uint64, digits int) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Sprintf("0x%0*X", digits, bits)
	}
	s := strconv.FormatFloat(v, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	if exponent == "+00" {
		return mantissa
	}
	return mantissa + "e" + exponent
}
