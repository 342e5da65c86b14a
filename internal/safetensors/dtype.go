package safetensors

import (
	"math"
	"math/bits"

	"github.com/gomlx/compute/dtypes"
)

// DType is the name of an element type in a safetensors file, such as "BF16".
type DType string

// Element types of the format. Elements of F4 and of the F6 types are packed, and their tensors
// must fill a whole number of bytes.
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

// dtypeInfo contains, for each element type, the size of an element in bits and the GoMLX dtype
// with the same memory representation, if there is one.
var dtypeInfo = map[DType]struct {
	bits int
	same dtypes.DType
}{
	Bool: {8, dtypes.Bool}, I8: {8, dtypes.Int8}, U8: {8, dtypes.Uint8}, I16: {16, dtypes.Int16},
	U16: {16, dtypes.Uint16},
	I32: {32, dtypes.Int32}, U32: {32, dtypes.Uint32}, I64: {64, dtypes.Int64}, U64: {64, dtypes.Uint64},
	F16: {16, dtypes.Float16}, BF16: {16, dtypes.BFloat16}, F32: {32, dtypes.Float32}, F64: {64, dtypes.Float64},
	C64: {64, dtypes.Complex64},
	F4:  {bits: 4}, F6E2M3: {bits: 6}, F6E3M2: {bits: 6},
	F8E5M2: {bits: 8}, F8E4M3: {bits: 8}, F8E8M0: {bits: 8}, F8E4M3FNUZ: {bits: 8}, F8E5M2FNUZ: {bits: 8},
}

// Bits returns the size of an element in bits, or 0 for an unknown type.
func (d DType) Bits() int { return dtypeInfo[d].bits }

// GoMLX returns the GoMLX dtype with the same memory representation, or dtypes.InvalidDType.
func (d DType) GoMLX() dtypes.DType { return dtypeInfo[d].same }

// FromGoMLX returns the DType with the same memory representation as a GoMLX dtype, or "".
func FromGoMLX(dtype dtypes.DType) DType {
	for d, t := range dtypeInfo {
		if t.same == dtype && dtype != dtypes.InvalidDType {
			return d
		}
	}
	return ""
}

func (d DType) byteSize(shape []int) (int64, error) {
	width := d.Bits()
	if width == 0 {
		return 0, formatError("unknown dtype %q", string(d))
	}
	n, empty := uint64(width), false
	for _, dim := range shape {
		if dim < 0 {
			return 0, formatError("shape %v has a negative dimension", shape)
		}
		empty = empty || dim == 0
	}
	if empty {
		return 0, nil
	}
	for _, dim := range shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		if hi != 0 || lo > math.MaxInt64 {
			return 0, formatError("the size of %s of shape %v overflows int64", d, shape)
		}
		n = lo
	}
	if n%8 != 0 {
		return 0, formatError("%s of shape %v does not fill complete bytes", d, shape)
	}
	return int64(n / 8), nil
}
