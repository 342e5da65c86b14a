package ir

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/gomlx/compute/dtypes"
)

// Type is the type of a tensor. A scalar has no dimensions.
type Type struct {
	DType dtypes.DType
	Dims  []int
}

func TensorType(dtype dtypes.DType, dims ...int) Type { return Type{DType: dtype, Dims: dims} }

func (t Type) Rank() int { return len(t.Dims) }

// IsEmpty reports whether a tensor of this type has no elements.
func (t Type) IsEmpty() bool { return slices.Contains(t.Dims, 0) }

// IsAddressable reports whether a tensor of this type fits into a 64-bit address space. It assumes
// elements of 16 bytes.
func (t Type) IsAddressable() bool {
	total := 1.0
	for _, d := range t.Dims {
		total *= float64(max(d, 1))
	}
	return total <= math.MaxInt64/16
}

// ElementType returns the scalar type of the elements.
func (t Type) ElementType() Type { return Type{DType: t.DType} }

// Equal reports whether both types have the same dtype and dimensions.
func (t Type) Equal(other Type) bool {
	return t.DType == other.DType && slices.Equal(t.Dims, other.Dims)
}

// WithDims returns a type with the same dtype and the given dimensions.
func (t Type) WithDims(dims ...int) Type { return Type{DType: t.DType, Dims: dims} }

// Stacked returns the type of n tensors of type t that are stacked along a new leading dimension.
func (t Type) Stacked(n int) Type {
	return Type{DType: t.DType, Dims: append([]int{n}, t.Dims...)}
}

// String returns the type in MLIR syntax, such as tensor<8x4xf32>.
func (t Type) String() string { return string(t.append(nil)) }

func (t Type) append(b []byte) []byte {
	b = append(b, "tensor<"...)
	for _, d := range t.Dims {
		if d < 0 { // unknown; no program of this module has it, and compilers reject it
			b = append(b, "?x"...)
			continue
		}
		b = strconv.AppendInt(b, int64(d), 10)
		b = append(b, 'x')
	}
	if !IsSupported(t.DType) {
		return fmt.Appendf(b, "unknown<%s>>", t.DType)
	}
	return append(append(b, dtypeNames[t.DType]...), '>')
}

// IsSupported reports whether a program can contain tensors of the dtype.
func IsSupported(d dtypes.DType) bool { return dtypeNames[d] != "" }

var dtypeNames = map[dtypes.DType]string{
	dtypes.Bool: "i1", dtypes.Int2: "i2", dtypes.Int4: "i4", dtypes.Int8: "i8", dtypes.Int16: "i16",
	dtypes.Int32: "i32", dtypes.Int64: "i64",
	dtypes.Uint2: "ui2", dtypes.Uint4: "ui4", dtypes.Uint8: "ui8", dtypes.Uint16: "ui16", dtypes.Uint32: "ui32",
	dtypes.Uint64:  "ui64",
	dtypes.Float16: "f16", dtypes.BFloat16: "bf16", dtypes.Float32: "f32", dtypes.Float64: "f64",
	dtypes.Complex64: "complex<f32>", dtypes.Complex128: "complex<f64>",
}
