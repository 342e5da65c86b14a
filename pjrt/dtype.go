package pjrt

import (
	"fmt"
	"unsafe"
)

// DType is the element type of a buffer. Its values are the values of PJRT_Buffer_Type.
type DType int

// The element types. Pred is a boolean. Names of 8-bit floating-point types contain the number of
// exponent and mantissa bits; FN means "no infinities", and UZ means "no negative zero".
const (
	Invalid DType = iota
	Pred
	S8
	S16
	S32
	S64
	U8
	U16
	U32
	U64
	F16
	F32
	F64
	BF16
	C64
	C128
	F8E5M2
	F8E4M3FN
	F8E4M3B11FNUZ
	F8E5M2FNUZ
	F8E4M3FNUZ
	S4
	U4
	Token
	S2
	U2
	F8E4M3
	F8E3M4
	F8E8M0FNU
	F4E2M1FN
	S1
	U1
)

// dtypes contains, for each type, XLA's name, the size of an element in bits, and the number in
// XLA's PrimitiveType (xla_data.proto), which differs from PJRT's number.
var dtypes = [...]struct {
	name string
	bits int
	xla  int
}{
	Invalid: {"INVALID", 0, 0}, Pred: {"PRED", 8, 1},
	S8: {"S8", 8, 2}, S16: {"S16", 16, 3}, S32: {"S32", 32, 4}, S64: {"S64", 64, 5},
	U8: {"U8", 8, 6}, U16: {"U16", 16, 7}, U32: {"U32", 32, 8}, U64: {"U64", 64, 9},
	F16: {"F16", 16, 10}, F32: {"F32", 32, 11}, F64: {"F64", 64, 12}, BF16: {"BF16", 16, 16},
	C64: {"C64", 64, 15}, C128: {"C128", 128, 18},
	F8E5M2: {"F8E5M2", 8, 19}, F8E4M3FN: {"F8E4M3FN", 8, 20}, F8E4M3B11FNUZ: {"F8E4M3B11FNUZ", 8, 23},
	F8E5M2FNUZ: {"F8E5M2FNUZ", 8, 24}, F8E4M3FNUZ: {"F8E4M3FNUZ", 8, 25},
	S4: {"S4", 4, 21}, U4: {"U4", 4, 22}, Token: {"TOKEN", 0, 17}, S2: {"S2", 2, 26}, U2: {"U2", 2, 27},
	F8E4M3: {"F8E4M3", 8, 28}, F8E3M4: {"F8E3M4", 8, 29}, F8E8M0FNU: {"F8E8M0FNU", 8, 33},
	F4E2M1FN: {"F4E2M1FN", 4, 32},
	S1:       {"S1", 1, 30}, U1: {"U1", 1, 31},
}

// String returns XLA's name for the type, such as "F32".
func (t DType) String() string {
	if t < 0 || int(t) >= len(dtypes) {
		return fmt.Sprintf("DType(%d)", int(t))
	}
	return dtypes[t].name
}

// Bits returns the size of one element on the device, in bits. It is 8 for Pred, and 0 for Token,
// Invalid and unknown types.
func (t DType) Bits() int {
	if t < 0 || int(t) >= len(dtypes) {
		return 0
	}
	return dtypes[t].bits
}

// HostBytes returns the size of one element in host memory, in bytes. Elements of less than 8 bits
// use the low bits of one byte.
func (t DType) HostBytes() int { return (t.Bits() + 7) / 8 }

// requiredMinor returns the PJRT minor version that introduced the type. A plugin with an older
// version would read beyond the end of a table if it received the type.
func (t DType) requiredMinor() int {
	switch t {
	case S1, U1:
		return 94
	case F4E2M1FN, F8E8M0FNU:
		return 63
	}
	return 0
}

// dtypeFromXLA converts a number of XLA's PrimitiveType to a DType. It returns Invalid for unknown
// numbers.
func dtypeFromXLA(n uint64) DType {
	for t, d := range dtypes {
		if t != int(Invalid) && uint64(d.xla) == n {
			return DType(t)
		}
	}
	return Invalid
}

// Element is the constraint for the Go types of tensor elements in host memory. F16 and BF16
// elements are stored as the bits in a uint16. Elements of 8 bits or less are stored as bool or as
// an 8-bit integer.
type Element interface {
	~bool | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// Bytes returns the memory of s as a byte slice in host byte order. The result shares memory with s.
func Bytes[T Element](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}
