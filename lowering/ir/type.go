package ir

import (
	"math"
	"slices"
	"strconv"

	"github.com/gomlx/compute/dtypes"
)

// Type is the type of a tensor: the dtype of its elements and its dimensions, none for a scalar.
type Type struct {
	DType dtypes.DType
	Dims  []int
}

// Tensor returns the type of a tensor with the given dimensions.
func Tensor(dtype dtypes.DType, dims ...int) Type { return Type{DType: dtype, Dims: dims} }

// Rank returns the number of dimensions.
func (t Type) Rank() int { return len(t.Dims) }

// Empty reports whether a tensor of this type has no elements.
func (t Type) Empty() bool { return slices.Contains(t.Dims, 0) }

// Addressable reports whether memory can have addresses for all elements, the largest being of 16
// bytes.
func (t Type) Addressable() bool {
	total := 1.0
	for _, d := range t.Dims {
		total *= float64(max(d, 1))
	}
	return total <= math.MaxInt64/16
}

// Element returns the type of one element.
func (t Type) Element() Type { return Type{DType: t.DType} }

// Equal reports whether two types are the same.
func (t Type) Equal(other Type) bool {
	return t.DType == other.DType && slices.Equal(t.Dims, other.Dims)
}

// With returns the type with other dimensions.
func (t Type) With(dims ...int) Type { return Type{DType: t.DType, Dims: dims} }

// Stacked returns the type of n such tensors one after another along a new leading dimension.
func (t Type) Stacked(n int) Type {
	return Type{DType: t.DType, Dims: append([]int{n}, t.Dims...)}
}

// String returns the type as MLIR writes it, such as tensor<8x4xf32>.
func (t Type) String() string { return string(t.append(nil)) }

func (t Type) append(b []byte) []byte {
	b = append(b, "tensor<"...)
	for _, d := range t.Dims {
		if d < 0 { // not known: no program of ours has it, and compilers refuse it
			b = append(b, "?x"...)
			continue
		}
		b = strconv.AppendInt(b, int64(d), 10)
		b = append(b, 'x')
	}
	b = append(b, element(t.DType)...)
	return append(b, '>')
}

// element is MLIR's name of a dtype.
func element(d dtypes.DType) string {
	switch d {
	case dtypes.Bool:
		return "i1"
	case dtypes.Int2:
		return "i2"
	case dtypes.Int4:
		return "i4"
	case dtypes.Int8:
		return "i8"
	case dtypes.Int16:
		return "i16"
	case dtypes.Int32:
		return "i32"
	case dtypes.Int64:
		return "i64"
	case dtypes.Uint2:
		return "ui2"
	case dtypes.Uint4:
		return "ui4"
	case dtypes.Uint8:
		return "ui8"
	case dtypes.Uint16:
		return "ui16"
	case dtypes.Uint32:
		return "ui32"
	case dtypes.Uint64:
		return "ui64"
	case dtypes.Float16:
		return "f16"
	case dtypes.BFloat16:
		return "bf16"
	case dtypes.Float32:
		return "f32"
	case dtypes.Float64:
		return "f64"
	case dtypes.Complex64:
		return "complex<f32>"
	case dtypes.Complex128:
		return "complex<f64>"
	}
	return "unknown<" + d.String() + ">"
}
