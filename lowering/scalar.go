package lowering

import (
	"fmt"
	"math"
	"strconv"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
)

// scalarValue names a value that exists in every dtype, or says why not.
type scalarValue int

const (
	valueZero    scalarValue = iota
	valueOne                 // 1, true
	valueLowest              // -Inf, or the lowest integer, or false
	valueHighest             // +Inf, or the highest integer, or true
	valueAllOnes             // every bit set; integers and bool only
)

// String names the value.
func (v scalarValue) String() string {
	return [...]string{"zero", "one", "lowest value", "highest value", "all bits set"}[v]
}

// constantScalar adds a constant scalar.
func constantScalar(fn *stablehlo.Function, d dtypes.DType, value scalarValue) (*stablehlo.Value, error) {
	text, ok := scalarText(d, value)
	if !ok {
		return nil, fmt.Errorf("dtype %s has no %s", d, value)
	}
	return constant(fn, text, xshapes.Make(d))
}

// infinities are the bit patterns of -Inf and +Inf.
var infinities = map[dtypes.DType][2]string{
	dtypes.Float16:  {"0xFC00", "0x7C00"},
	dtypes.BFloat16: {"0xFF80", "0x7F80"},
	dtypes.Float32:  {"0xFF800000", "0x7F800000"},
	dtypes.Float64:  {"0xFFF0000000000000", "0x7FF0000000000000"},
}

// scalarText is the MLIR text of a value in a dtype.
func scalarText(d dtypes.DType, value scalarValue) (string, bool) {
	switch {
	case d == dtypes.Bool:
		return strconv.FormatBool(value != valueZero && value != valueLowest), true
	case d.IsComplex():
		return [...]string{"(0.0, 0.0)", "(1.0, 0.0)"}[min(value, valueOne)], value <= valueOne
	case value == valueZero || value == valueOne:
		if d.IsFloat() {
			return [...]string{"0.0", "1.0"}[value], representable(d)
		}
		return strconv.Itoa(int(value)), representable(d)
	case d.IsFloat():
		inf, ok := infinities[d]
		return inf[min(value-valueLowest, 1)], ok && value != valueAllOnes
	case !representable(d):
		return "", false
	}
	bits := d.Bits()
	if d.IsUnsigned() || d == dtypes.Uint4 || d == dtypes.Uint2 {
		if value == valueLowest {
			return "0", true
		}
		return strconv.FormatUint(math.MaxUint64>>(64-bits), 10), true
	}
	switch value {
	case valueLowest:
		return strconv.FormatInt(math.MinInt64>>(64-bits), 10), true
	case valueHighest:
		return strconv.FormatInt(math.MaxInt64>>(64-bits), 10), true
	}
	return "-1", true
}
