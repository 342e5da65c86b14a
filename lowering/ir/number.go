package ir

import (
	"strconv"

	"github.com/gomlx/compute/dtypes"
)

// Integer returns an integer as a Number.
func Integer(n int) Number {
	return Number{Text: strconv.Itoa(n), Value: float64(n), HasValue: true}
}

// Float returns a floating-point number. text is the number in MLIR syntax, which requires a
// decimal point.
func Float(text string, value float64) Number {
	return Number{Text: text, Value: value, HasValue: true}
}

func True() Number { return Number{Text: "true", HasValue: true} }

func Zero(d dtypes.DType) Number {
	switch {
	case d == dtypes.Bool:
		return Number{Text: "false", HasValue: true}
	case d.IsComplex():
		return Number{Text: "(0.0, 0.0)"}
	case d.IsFloat():
		return Float("0.0", 0)
	}
	return Integer(0)
}
