package hostdata

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// pjrtTypes maps the dtypes of GoMLX to those of PJRT.
var pjrtTypes = map[dtypes.DType]pjrt.DType{
	dtypes.Bool:       pjrt.Pred,
	dtypes.Int2:       pjrt.S2,
	dtypes.Int4:       pjrt.S4,
	dtypes.Int8:       pjrt.S8,
	dtypes.Int16:      pjrt.S16,
	dtypes.Int32:      pjrt.S32,
	dtypes.Int64:      pjrt.S64,
	dtypes.Uint2:      pjrt.U2,
	dtypes.Uint4:      pjrt.U4,
	dtypes.Uint8:      pjrt.U8,
	dtypes.Uint16:     pjrt.U16,
	dtypes.Uint32:     pjrt.U32,
	dtypes.Uint64:     pjrt.U64,
	dtypes.Float16:    pjrt.F16,
	dtypes.BFloat16:   pjrt.BF16,
	dtypes.Float32:    pjrt.F32,
	dtypes.Float64:    pjrt.F64,
	dtypes.Complex64:  pjrt.C64,
	dtypes.Complex128: pjrt.C128,
}

// PJRTType converts a GoMLX dtype to the PJRT element type.
func PJRTType(d dtypes.DType) (pjrt.DType, error) {
	if t, ok := pjrtTypes[d]; ok {
		return t, nil
	}
	return pjrt.Invalid, fmt.Errorf("dtype %s is not supported", d)
}

// Unpack converts elements of less than 8 bits from GoMLX's packed format to PJRT's format of one
// byte per element. In the packed format, the first element is in the low bits of a byte. Signed
// elements are sign-extended. length is the number of elements.
func Unpack(packed []byte, d dtypes.DType, length int) []byte {
	bits := d.Bits()
	perByte := 8 / bits
	signed := d == dtypes.Int2 || d == dtypes.Int4
	out := make([]byte, length)
	for i := range out {
		v := packed[i/perByte] >> (i % perByte * bits) << (8 - bits)
		if signed {
			out[i] = byte(int8(v) >> (8 - bits))
		} else {
			out[i] = v >> (8 - bits)
		}
	}
	return out
}

// Pack is the inverse of [Unpack]. It stores the packed elements in dst.
func Pack(dst, values []byte, d dtypes.DType) {
	bits := d.Bits()
	perByte := 8 / bits
	mask := byte(1)<<bits - 1
	clear(dst)
	for i, v := range values {
		dst[i/perByte] |= v & mask << (i % perByte * bits)
	}
}

// Bytes returns the memory of a flat Go slice of the given dtype as bytes, without a copy.
func Bytes(flat any, d dtypes.DType, elements int) ([]byte, error) {
	if flat == nil && elements == 0 {
		return nil, nil
	}
	t := reflect.TypeOf(flat)
	if t == nil || t.Kind() != reflect.Slice ||
		(t.Elem() != d.GoType() && !(t.Elem().Kind() == reflect.Int && d == dtypes.Int64 && strconv.IntSize == 64)) {
		return nil, fmt.Errorf("want a []%s for dtype %s, got %T", d.GoType(), d, flat)
	}
	bytes := dtypes.UnsafeByteSliceFromAny(flat)
	if want := d.SizeForDimensions(elements); len(bytes) != want {
		return nil, fmt.Errorf("want %d bytes for %d elements of %s, got %d", want, elements, d, len(bytes))
	}
	return bytes, nil
}

// DeviceBytes returns a flat Go slice of the given dtype as row-major bytes in the format that PJRT
// expects. The result shares memory with flat unless elements have less than 8 bits.
func DeviceBytes(flat any, d dtypes.DType, elements int) ([]byte, error) {
	bytes, err := Bytes(flat, d, elements)
	if err != nil || !d.IsPacked() {
		return bytes, err
	}
	return Unpack(bytes, d, elements), nil
}
