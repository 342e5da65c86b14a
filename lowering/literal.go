package lowering

import (
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

// inlineElements is the number of elements up to which a constant is written as readable numbers;
// beyond it the bytes are written in hexadecimal, which is exact, shorter and faster to parse.
const inlineElements = 16

// constant adds a constant that is one number everywhere.
func constant(fn *stablehlo.Function, number ir.Number, shape xshapes.Shape) (*stablehlo.Value, error) {
	return dense(fn, &ir.Dense{Splat: &number}, shape)
}

// dense adds a constant. Its type is the shape's.
func dense(fn *stablehlo.Function, value *ir.Dense, shape xshapes.Shape) (*stablehlo.Value, error) {
	v, err := fn.ConstantFromFlatAndShape(nil, shape)
	if err != nil {
		return nil, err
	}
	value.Type = typeOf(shape)
	fn.Statements[len(fn.Statements)-1].Attributes[ir.Elements] = value
	return v, nil
}

// constantFromFlat adds a constant from a Go slice.
func (f *Function) constantFromFlat(flat any, dims []int) (*stablehlo.Value, error) {
	shape, values, err := flatShape(flat, dims)
	if err != nil {
		return nil, err
	}
	return dense(f.fn, denseOf(values), shape)
}

// elementsOf is a typed view of a flat slice: its length and its element i, plus its bytes in
// little-endian order where MLIR takes them so (nil otherwise).
type elementsOf struct {
	length int
	number func(i int) ir.Number
	same   func(i, j int) bool
	bytes  func() []byte
}

// flatShape finds dtype and elements of a flat Go slice and checks its length against dims.
func flatShape(flat any, dims []int) (xshapes.Shape, elementsOf, error) {
	dtype, values, err := elements(flat)
	if err != nil {
		return xshapes.Shape{}, values, err
	}
	size := 1
	for axis, dim := range dims {
		if dim < 0 {
			return xshapes.Shape{}, values, fmt.Errorf("dimension %d of axis %d is negative", dim, axis)
		}
		size *= dim
	}
	if size != values.length {
		return xshapes.Shape{}, values, fmt.Errorf("%d values for dimensions %v, which hold %d", values.length, dims, size)
	}
	return xshapes.Make(dtype, dims...), values, nil
}

// elements dispatches on the Go type of the slice.
func elements(flat any) (dtypes.DType, elementsOf, error) {
	switch s := flat.(type) {
	case nil:
		return dtypes.InvalidDType, elementsOf{}, errors.New("the flat slice is nil")
	case []bool:
		return dtypes.Bool, view(s, boolNumber, nil), nil
	case []int8:
		return dtypes.Int8, view(s, signed[int8], func(b []byte, v int8) []byte { return append(b, byte(v)) }), nil
	case []int16:
		return dtypes.Int16, view(s, signed[int16], func(b []byte, v int16) []byte {
			return binary.LittleEndian.AppendUint16(b, uint16(v))
		}), nil
	case []int32:
		return dtypes.Int32, view(s, signed[int32], func(b []byte, v int32) []byte {
			return binary.LittleEndian.AppendUint32(b, uint32(v))
		}), nil
	case []int64:
		return dtypes.Int64, view(s, signed[int64], func(b []byte, v int64) []byte {
			return binary.LittleEndian.AppendUint64(b, uint64(v))
		}), nil
	case []int:
		return dtypes.Int64, view(s, signed[int], func(b []byte, v int) []byte {
			return binary.LittleEndian.AppendUint64(b, uint64(v))
		}), nil
	case []uint8:
		return dtypes.Uint8, view(s, unsigned[uint8], func(b []byte, v uint8) []byte { return append(b, v) }), nil
	case []uint16:
		return dtypes.Uint16, view(s, unsigned[uint16], binary.LittleEndian.AppendUint16), nil
	case []uint32:
		return dtypes.Uint32, view(s, unsigned[uint32], binary.LittleEndian.AppendUint32), nil
	case []uint64:
		return dtypes.Uint64, view(s, unsigned[uint64], binary.LittleEndian.AppendUint64), nil
	case []float16.Float16:
		return dtypes.Float16, view(s, func(v float16.Float16) ir.Number {
			return floatNumber(float64(v.Float32()), uint64(v), 4)
		}, func(b []byte, v float16.Float16) []byte { return binary.LittleEndian.AppendUint16(b, uint16(v)) }), nil
	case []bfloat16.BFloat16:
		return dtypes.BFloat16, view(s, func(v bfloat16.BFloat16) ir.Number {
			return floatNumber(float64(v.Float32()), uint64(v), 4)
		}, func(b []byte, v bfloat16.BFloat16) []byte { return binary.LittleEndian.AppendUint16(b, uint16(v)) }), nil
	case []float32:
		return dtypes.Float32, view(s, float32Number, func(b []byte, v float32) []byte {
			return binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
		}), nil
	case []float64:
		return dtypes.Float64, view(s, float64Number, func(b []byte, v float64) []byte {
			return binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
		}), nil
	case []complex64:
		return dtypes.Complex64, view(s, func(v complex64) ir.Number {
			return complexNumber(float32Number(real(v)), float32Number(imag(v)))
		}, func(b []byte, v complex64) []byte {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(real(v)))
			return binary.LittleEndian.AppendUint32(b, math.Float32bits(imag(v)))
		}), nil
	case []complex128:
		return dtypes.Complex128, view(s, func(v complex128) ir.Number {
			return complexNumber(float64Number(real(v)), float64Number(imag(v)))
		}, func(b []byte, v complex128) []byte {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(real(v)))
			return binary.LittleEndian.AppendUint64(b, math.Float64bits(imag(v)))
		}), nil
	}
	return dtypes.InvalidDType, elementsOf{}, fmt.Errorf("want a flat slice of a numeric type or bool, got %T", flat)
}

// view makes the elementsOf of a slice. Equality is that of the written text, so that NaNs are
// equal to themselves and 0 differs from -0.
func view[T any](s []T, number func(T) ir.Number, appendTo func([]byte, T) []byte) elementsOf {
	e := elementsOf{
		length: len(s),
		number: func(i int) ir.Number { return number(s[i]) },
	}
	e.same = func(i, j int) bool { return number(s[i]).Text == number(s[j]).Text }
	if appendTo != nil {
		e.same = func(i, j int) bool {
			var a, b [16]byte
			return string(appendTo(a[:0], s[i])) == string(appendTo(b[:0], s[j]))
		}
		e.bytes = func() []byte {
			var out []byte
			for _, v := range s {
				out = appendTo(out, v)
			}
			return out
		}
	}
	return e
}

// denseOf is a constant's elements: one number where all are the same, a list where there are few,
// bytes otherwise.
func denseOf(e elementsOf) *ir.Dense {
	if e.length == 0 {
		return &ir.Dense{}
	}
	splat := true
	for i := 1; i < e.length && splat; i++ {
		splat = e.same(0, i)
	}
	if splat {
		number := e.number(0)
		return &ir.Dense{Splat: &number}
	}
	if e.length > inlineElements && e.bytes != nil {
		return &ir.Dense{Bytes: e.bytes()}
	}
	list := make([]ir.Number, e.length)
	for i := range list {
		list[i] = e.number(i)
	}
	return &ir.Dense{List: list}
}

func boolNumber(v bool) ir.Number {
	n := ir.Number{Text: strconv.FormatBool(v), Known: true}
	if v {
		n.Value = 1
	}
	return n
}

func signed[T int | int8 | int16 | int32 | int64](v T) ir.Number {
	return ir.Number{Text: strconv.FormatInt(int64(v), 10), Value: float64(v), Known: true}
}

func unsigned[T uint8 | uint16 | uint32 | uint64](v T) ir.Number {
	return ir.Number{Text: strconv.FormatUint(uint64(v), 10), Value: float64(v), Known: true}
}

func floatNumber(v float64, bits uint64, digits int) ir.Number {
	return ir.Number{Text: floatText(v, bits, digits), Value: v, Known: true}
}

func float32Number(v float32) ir.Number {
	return floatNumber(float64(v), uint64(math.Float32bits(v)), 8)
}

func float64Number(v float64) ir.Number { return floatNumber(v, math.Float64bits(v), 16) }

func complexNumber(re, im ir.Number) ir.Number {
	return ir.Number{Text: "(" + re.Text + ", " + im.Text + ")"}
}

// floatText writes v exactly: MLIR wants a decimal point in decimal numbers, and the bit pattern,
// of the given number of hexadecimal digits, for what has no decimal form.
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
