package accept

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/tpustrategy/tpustrategy/pjrt"
)

// mlirNames maps a dtype to the name of the element type in StableHLO.
var mlirNames = map[pjrt.DType]string{
	pjrt.Pred: "i1", pjrt.S4: "i4", pjrt.S8: "i8", pjrt.S16: "i16", pjrt.S32: "i32", pjrt.S64: "i64",
	pjrt.U4: "ui4", pjrt.U8: "ui8", pjrt.U16: "ui16", pjrt.U32: "ui32", pjrt.U64: "ui64",
	pjrt.F16: "f16", pjrt.BF16: "bf16", pjrt.F32: "f32", pjrt.F64: "f64", pjrt.C64: "complex<f32>",
	pjrt.C128:   "complex<f64>",
	pjrt.F8E5M2: "f8E5M2", pjrt.F8E4M3FN: "f8E4M3FN", pjrt.F8E4M3B11FNUZ: "f8E4M3B11FNUZ", pjrt.F8E5M2FNUZ: "f8E5M2FNUZ",
	pjrt.F8E4M3FNUZ: "f8E4M3FNUZ", pjrt.F8E4M3: "f8E4M3", pjrt.F8E3M4: "f8E3M4",
}

// smallFloats contains the numbers of mantissa bits and the exponent biases of floats without a Go type.
var smallFloats = map[pjrt.DType][2]int{
	pjrt.F16: {10, 15}, pjrt.BF16: {7, 127}, pjrt.F8E5M2: {2, 15}, pjrt.F8E4M3FN: {3, 7}, pjrt.F8E4M3B11FNUZ: {3, 11},
	pjrt.F8E5M2FNUZ: {2, 16}, pjrt.F8E4M3FNUZ: {3, 8}, pjrt.F8E4M3: {3, 7}, pjrt.F8E3M4: {4, 3},
}

func isFloat8(t pjrt.DType) bool {
	_, small := smallFloats[t]
	return small && t.Bits() == 8
}

// appendNumber appends the encoding of v, a small number that every dtype can represent.
func appendNumber(b []byte, t pjrt.DType, v int) []byte {
	if f, ok := smallFloats[t]; ok {
		pattern := 0
		if v > 0 {
			exponent := bits.Len(uint(v)) - 1
			pattern = (exponent+f[1])<<f[0] | (v<<f[0]>>exponent)&(1<<f[0]-1)
		}
		if t.Bits() == 8 {
			return append(b, byte(pattern))
		}
		return binary.LittleEndian.AppendUint16(b, uint16(pattern))
	}
	switch t {
	case pjrt.Pred:
		return append(b, byte(min(v, 1)))
	case pjrt.F32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	case pjrt.F64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
	case pjrt.C64, pjrt.C128:
		return append(b, encodeSum(t, v, 1)...)
	}
	for i := range t.HostBytes() {
		b = append(b, byte(uint64(v)>>(8*i)))
	}
	return b
}

func encodeNumbers(t pjrt.DType, values ...int) (b []byte) {
	for _, v := range values {
		b = appendNumber(b, t, v)
	}
	return b
}

func encodeSum(t pjrt.DType, sum, terms int) []byte {
	switch t {
	case pjrt.C64:
		return encodeNumbers(pjrt.F32, sum, sum+terms)
	case pjrt.C128:
		return encodeNumbers(pjrt.F64, sum, sum+terms)
	}
	return encodeNumbers(t, sum)
}

func formatElement(t pjrt.DType, b []byte) string {
	switch t {
	case pjrt.F32:
		return fmt.Sprint(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case pjrt.F64:
		return fmt.Sprint(math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case pjrt.S32:
		return fmt.Sprint(int32(binary.LittleEndian.Uint32(b)))
	case pjrt.S64:
		return fmt.Sprint(int64(binary.LittleEndian.Uint64(b)))
	}
	return fmt.Sprintf("0x%x", b)
}
