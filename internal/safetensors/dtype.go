package safetensors

import (
	"math"
	"math/bits"

	"github.com/gomlx/compute/dtypes"
)

// DType is the name of an element type, as the format writes it.
type DType string

// The element types of the format. The values of F4 and of the F6 types are packed: their tensors
// have to fill whole bytes.
const (
	Bool       DType = "BOOL"
	F4         DType = "F4"
	F6E2M3     DType = "F6_E2M3"
	F6E3M2     DType = "F6_E3M2"
	U8         DType = "U8"
	I8         DType = "I8"
	F8E5M2     DType = "F8_E5M2"
	F8E4M3     DType = "F8_E4M3"
	F8E8M0     DType = "F8_E8M0"
	F8E4M3FNUZ DType = "F8_E4M3FNUZ"
	F8E5M2FNUZ DType = "F8_E5M2FNUZ"
	I16        DType = "I16"
	U16        DType = "U16"
	F16        DType = "F16"
	BF16       DType = "BF16"
	I32        DType = "I32"
	U32        DType = "U32"
	F32        DType = "F32"
	C64        DType = "C64"
	F64        DType = "F64"
	I64        DType = "I64"
	U64        DType = "U64"
)

// Bits returns the size of one element in bits, and 0 for a type that the format does not have.
func (d DType) Bits() int {
	switch d {
	case F4:
		return 4
	case F6E2M3, F6E3M2:
		return 6
	case Bool, U8, I8, F8E5M2, F8E4M3, F8E8M0, F8E4M3FNUZ, F8E5M2FNUZ:
		return 8
	case I16, U16, F16, BF16:
		return 16
	case I32, U32, F32:
		return 32
	case C64, F64, I64, U64:
		return 64
	}
	return 0
}

// sameTypes are the dtypes of GoMLX whose bytes in memory are those of a file, by the file's type.
var sameTypes = map[DType]dtypes.DType{
	Bool: dtypes.Bool, I8: dtypes.Int8, I16: dtypes.Int16, I32: dtypes.Int32, I64: dtypes.Int64,
	U8: dtypes.Uint8, U16: dtypes.Uint16, U32: dtypes.Uint32, U64: dtypes.Uint64,
	F16: dtypes.Float16, BF16: dtypes.BFloat16, F32: dtypes.Float32, F64: dtypes.Float64, C64: dtypes.Complex64,
}

// GoMLX returns the dtype whose bytes in memory are those of the file, and dtypes.InvalidDType if
// there is none.
func (d DType) GoMLX() dtypes.DType { return sameTypes[d] }

// Of is the inverse of [DType.GoMLX]; it returns "" if there is no such type.
func Of(dtype dtypes.DType) DType {
	for d, same := range sameTypes {
		if same == dtype {
			return d
		}
	}
	return ""
}

// size is the number of bytes of a tensor.
func (d DType) size(shape []int) (int64, error) {
	width := d.Bits()
	if width == 0 {
		return 0, invalid("unknown dtype %q", string(d))
	}
	n, empty := uint64(width), false
	for _, dim := range shape {
		if dim < 0 {
			return 0, invalid("shape %v has a negative dimension", shape)
		}
		empty = empty || dim == 0
	}
	if empty {
		return 0, nil
	}
	for _, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, invalid("%s of shape %v has more bytes than can be counted", d, shape)
		}
		n = lo
	}
	if n%8 != 0 {
		return 0, invalid("%s of shape %v does not fill whole bytes", d, shape)
	}
	return int64(n / 8), nil
}
