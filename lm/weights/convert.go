package weights

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/safetensors"
)

type conversion struct {
	srcBytes, dstBytes int // bytes of an element
	// isCopy means that the bytes are copied without conversion.
	isCopy bool
	// convert converts n consecutive elements of src, beginning with element srcStart, to elements
	// dstStart, dstStart+step, ... of dst. It returns false if a finite element becomes infinite.
	convert func(dst []byte, dstStart, step int, src []byte, srcStart, n int) bool
	// transpose converts and transposes a block. It is nil if there is only convert.
	transpose transposeFunc
}

// elementReaders contains functions that decode element at of src as a float64.
var elementReaders = map[safetensors.DType]func(src []byte, at int) float64{
	safetensors.F64: func(src []byte,
		at int) float64 {
		return math.Float64frombits(binary.LittleEndian.Uint64(src[8*at:]))
	},
	safetensors.F32:  func(src []byte, at int) float64 { return float64(float32At(src, at)) },
	safetensors.BF16: func(src []byte, at int) float64 { return float64(bfloat16At(src, at)) },
	safetensors.F16: func(src []byte, at int) float64 {
		return decodeFloat(uint32(binary.LittleEndian.Uint16(src[2*at:])), 5, 10, true)
	},
	safetensors.F8E5M2: func(src []byte, at int) float64 { return decodeFloat(uint32(src[at]), 5, 2, true) },
	safetensors.F8E4M3: func(src []byte, at int) float64 { return decodeFloat(uint32(src[at]), 4, 3, false) },
}

// elementWriters contains functions that encode x as element at of dst. They return false if a
// finite x becomes infinite.
var elementWriters = map[dtypes.DType]func(dst []byte, at int, x float64) bool{
	dtypes.Float64: func(dst []byte, at int, x float64) bool {
		binary.LittleEndian.PutUint64(dst[8*at:], math.Float64bits(x))
		return true
	},
	dtypes.Float32: func(dst []byte, at int, x float64) bool {
		y := float32(x)
		binary.LittleEndian.PutUint32(dst[4*at:], math.Float32bits(y))
		return !math.IsInf(float64(y), 0) || math.IsInf(x, 0)
	},
	dtypes.BFloat16: func(dst []byte, at int, x float64) bool {
		bits, ok := encodeFloat(x, 8, 7)
		binary.LittleEndian.PutUint16(dst[2*at:], uint16(bits))
		return ok
	},
	dtypes.Float16: func(dst []byte, at int, x float64) bool {
		bits, ok := encodeFloat(x, 5, 10)
		binary.LittleEndian.PutUint16(dst[2*at:], uint16(bits))
		return ok
	},
}

func float32At(src []byte, index int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(src[4*index:]))
}

func bfloat16At(src []byte, index int) float32 {
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*index:])) << 16)
}

// decodeFloat decodes a float with the given numbers of exponent and fraction bits. If infinities
// is false, the format has no infinities, and its only NaN has all bits set.
func decodeFloat(bits uint32, exponent, fraction int, infinities bool) float64 {
	sign := 1.0
	if bits>>(exponent+fraction)&1 != 0 {
		sign = -1
	}
	e, f := int(bits>>fraction)&(1<<exponent-1), int(bits)&(1<<fraction-1)
	bias := 1<<(exponent-1) - 1
	switch {
	case e == 1<<exponent-1 && infinities && f == 0:
		return math.Inf(int(sign))
	case e == 1<<exponent-1 && (infinities || f == 1<<fraction-1):
		return math.NaN()
	case e == 0:
		return sign * math.Ldexp(float64(f), 1-bias-fraction)
	}
	return sign * math.Ldexp(float64(f|1<<fraction), e-bias-fraction)
}

// encodeFloat encodes x as a float with the given numbers of exponent and fraction bits, rounded to
// nearest even. ok is false if a finite x becomes infinite.
func encodeFloat(x float64, exponent, fraction int) (bits uint32, ok bool) {
	sign := uint32(math.Float64bits(x)>>63) << (exponent + fraction)
	bias, inf := 1<<(exponent-1)-1, uint32(1<<exponent-1)<<fraction
	switch {
	case math.IsNaN(x):
		return sign | inf | 1<<(fraction-1), true
	case math.IsInf(x, 0):
		return sign | inf, true
	case x == 0:
		return sign, true
	}
	_, e := math.Frexp(x) // |x| is in [2^(e-1), 2^e)
	e = max(e-1, 1-bias)
	n := uint32(math.RoundToEven(math.Ldexp(math.Abs(x), fraction-e)))
	bits = n // the rounding may carry into the exponent
	if n >= 1<<fraction {
		bits = uint32(e+bias-1)<<fraction + n
	}
	return sign | min(bits, inf), bits < inf
}

// newConversion returns a conversion of elements from a file's dtype to a variable's dtype. The
// conversion adds the constant add to each element.
func newConversion(file string, target dtypes.DType, add float64) (conversion, error) {
	source := safetensors.DType(file)
	same := safetensors.FromGoMLX(target) == source && source != ""
	if same && add == 0 {
		size := source.Bits() / 8
		return conversion{size, size, true, elementCopier(size), map[int]transposeFunc{2: transpose2,
			4: transpose4}[size]}, nil
	}
	read, write := elementReaders[source], elementWriters[target]
	if read == nil || write == nil {
		return conversion{}, &errkind.Fault{Reason: fmt.Sprintf("a tensor of %s cannot become %s", file, target),
			Match: errors.ErrUnsupported, Class: errkind.TypeError,
			Hint: "floats become floats; integers and booleans keep their dtype; numbers of less than 8 bits, and those with " +
				"scales, have to be unpacked before"}
	}
	f := conversion{srcBytes: source.Bits() / 8, dstBytes: target.Size()}
	f.convert = func(dst []byte, start, step int, src []byte, srcStart, n int) bool {
		ok := true
		for i := range n {
			if !write(dst, start+i*step, read(src, srcStart+i)+add) {
				ok = false
			}
		}
		return ok
	}
	switch {
	case source == safetensors.BF16 && target == dtypes.Float32 && add == 0:
		f.convert, f.transpose = convertBF16ToF32, transposeBF16ToF32
	case source == safetensors.F32 && target == dtypes.BFloat16 && add == 0:
		f.convert = convertF32ToBF16
	}
	return f, nil
}

func convertBF16ToF32(dst []byte, dstStart, step int, src []byte, srcStart, n int) bool {
	src = src[2*srcStart : 2*(srcStart+n)]
	if step == 1 {
		dst = dst[4*dstStart : 4*(dstStart+n)]
		for len(src) >= 8 { // four at a time
			x := binary.LittleEndian.Uint64(src)
			binary.LittleEndian.PutUint64(dst[8:16], x>>48<<48|x>>32<<48>>32)
			binary.LittleEndian.PutUint64(dst[:8], x>>16<<48|x<<48>>32)
			src, dst = src[8:], dst[16:]
		}
		for ; len(src) >= 2; src, dst = src[2:], dst[4:] {
			binary.LittleEndian.PutUint32(dst, uint32(binary.LittleEndian.Uint16(src))<<16)
		}
		return true
	}
	for i := 0; i < n; i++ {
		binary.LittleEndian.PutUint32(dst[4*(dstStart+i*step):], uint32(binary.LittleEndian.Uint16(src[2*i:]))<<16)
	}
	return true
}

// convertF32ToBF16 converts n elements from float32 to bfloat16, rounded to nearest even. It
// returns false if a finite number becomes infinite.
func convertF32ToBF16(dst []byte, dstStart, step int, src []byte, srcStart, n int) bool {
	ok := true
	for i := range n {
		bits := binary.LittleEndian.Uint32(src[4*(srcStart+i):])
		out := (bits + 0x7fff + bits>>16&1) >> 16
		if bits&0x7f800000 == 0x7f800000 { // infinity or NaN
			if out = bits >> 16; bits&0x7fffff != 0 {
				out |= 0x40
			}
		} else if out&0x7f80 == 0x7f80 {
			ok = false
		}
		binary.LittleEndian.PutUint16(dst[2*(dstStart+i*step):], uint16(out))
	}
	return ok
}

// elementCopier returns a function that copies elements of size bytes without conversion.
func elementCopier(size int) func(dst []byte, dstStart, step int, src []byte, srcStart, n int) bool {
	return func(dst []byte, dstStart, step int, src []byte, srcStart, n int) bool {
		if step == 1 {
			copy(dst[size*dstStart:size*(dstStart+n)], src[size*srcStart:])
			return true
		}
		switch size { // a separate loop for each size, because these copies use most of the time
		case 1:
			for i := range n {
				dst[dstStart+i*step] = src[srcStart+i]
			}
		case 2:
			for i := range n {
				binary.LittleEndian.PutUint16(dst[2*(dstStart+i*step):], binary.LittleEndian.Uint16(src[2*(srcStart+i):]))
			}
		case 4:
			for i := range n {
				binary.LittleEndian.PutUint32(dst[4*(dstStart+i*step):], binary.LittleEndian.Uint32(src[4*(srcStart+i):]))
			}
		case 8:
			for i := range n {
				binary.LittleEndian.PutUint64(dst[8*(dstStart+i*step):], binary.LittleEndian.Uint64(src[8*(srcStart+i):]))
			}
		}
		return true
	}
}
