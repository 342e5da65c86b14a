package lowering

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"

	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// scalarValue is a special value that each dtype represents differently, such as zero or infinity.
type scalarValue int

const (
	valueZero    scalarValue = iota
	valueOne                 // 1, true
	valueLowest              // -Inf, or the lowest integer, or false
	valueHighest             // +Inf, or the highest integer, or true
	valueAllOnes             // every bit set; integers and bool only
)

func (v scalarValue) String() string {
	return [...]string{"zero", "one", "lowest value", "highest value", "all bits set"}[v]
}

// infinities contains the bits of -Inf and +Inf, and the number of hexadecimal digits.
var infinities = map[dtypes.DType]struct {
	bits   [2]uint64
	digits int
}{
	dtypes.Float16:  {[2]uint64{0xFC00, 0x7C00}, 4},
	dtypes.BFloat16: {[2]uint64{0xFF80, 0x7F80}, 4},
	dtypes.Float32:  {[2]uint64{0xFF800000, 0x7F800000}, 8},
	dtypes.Float64:  {[2]uint64{0xFFF0000000000000, 0x7FF0000000000000}, 16},
}

// scalarNumber returns a special value of dtype d. It panics if the dtype has no such value.
func scalarNumber(d dtypes.DType, value scalarValue) ir.Number {
	number, ok := scalarNumberOf(d, value)
	if !ok {
		panic(fmt.Errorf("dtype %s has no %s", d, value))
	}
	return number
}

func scalarNumberOf(d dtypes.DType, value scalarValue) (ir.Number, bool) {
	switch {
	case d == dtypes.Bool:
		return boolNumber(value != valueZero && value != valueLowest), true
	case d.IsComplex():
		return complexNumber(float64Number(float64(min(value, valueOne))), float64Number(0)), value <= valueOne
	case value == valueZero || value == valueOne:
		if d.IsFloat() {
			return float64Number(float64(value)), ir.IsSupported(d)
		}
		return signedNumber(int(value)), ir.IsSupported(d)
	case d.IsFloat():
		inf, ok := infinities[d]
		i := min(value-valueLowest, 1)
		return floatNumber(math.Inf(2*int(i)-1), inf.bits[i], inf.digits), ok && value != valueAllOnes
	case !ir.IsSupported(d):
		return ir.Number{}, false
	}
	bits := d.Bits()
	if d.IsUnsigned() || d == dtypes.Uint4 || d == dtypes.Uint2 {
		if value == valueLowest {
			return signedNumber(0), true
		}
		return unsignedNumber(uint64(math.MaxUint64) >> (64 - bits)), true
	}
	switch value {
	case valueLowest:
		return signedNumber(int64(math.MinInt64) >> (64 - bits)), true
	case valueHighest:
		return signedNumber(int64(math.MaxInt64) >> (64 - bits)), true
	}
	return signedNumber(-1), true
}
