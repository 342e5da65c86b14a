package ir

import (
	"strconv"

	"github.com/gomlx/compute/dtypes"
)

// Integer returns an integer as a Number.
func Integer(n int) Number {
	return Number{Text: strconv.Itoa(n), Value: float64(n), HasValue: true}
}

// Float returns a floating-point number with its text. MLIR requires a decimal point in the text.
func Float(text string, value float64) Number {
	return Number{Text: text, Value: value, HasValue: true}
}

// True returns the Bool true.
func True() Number { return Number{Text: "true", HasValue: true} }

// Zero returns the zero of a dtype.
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
