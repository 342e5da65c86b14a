package ir

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Attr is the value of an attribute. Append appends the value to text, in MLIR syntax.
type Attr interface {
	Append(text []byte) []byte
}

// Raw is attribute text in MLIR syntax.
type Raw string

// Append implements [Attr].
func (r Raw) Append(text []byte) []byte { return append(text, r...) }

// Ints is a list of 64-bit integers, such as array<i64: 1, 2>.
type Ints []int

// Append implements [Attr].
func (list Ints) Append(text []byte) []byte {
	if len(list) == 0 {
		return append(text, "array<i64>"...)
	}
	return append(appendInts(append(text, "array<i64: "...), list), '>')
}

func appendInts(text []byte, list []int) []byte {
	for i, n := range list {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = strconv.AppendInt(text, int64(n), 10)
	}
	return text
}

// IntMatrix is a list of integer lists of equal length, such as the padding before and after each
// dimension, or the replica groups of a collective.
type IntMatrix [][]int

// Append implements [Attr].
func (rows IntMatrix) Append(text []byte) []byte {
	text = append(text, "dense<["...)
	width := 2 // the width of paddings, for an empty list
	for i, row := range rows {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = append(appendInts(append(text, '['), row), ']')
		width = len(row)
	}
	return fmt.Appendf(text, "]> : tensor<%dx%dxi64>", len(rows), width)
}

// Int is a 64-bit integer, such as 1 : i64.
type Int int64

// Append implements [Attr].
func (n Int) Append(text []byte) []byte {
	return append(strconv.AppendInt(text, int64(n), 10), " : i64"...)
}

// Int32 is a 32-bit integer, such as 1 : i32.
type Int32 int32

// Append implements [Attr].
func (n Int32) Append(text []byte) []byte {
	return append(strconv.AppendInt(text, int64(n), 10), " : i32"...)
}

// Float32 is a 32-bit floating-point number, such as 0.001 : f32.
type Float32 float32

// Append implements [Attr].
func (x Float32) Append(text []byte) []byte {
	if v := float64(x); math.IsNaN(v) || math.IsInf(v, 0) {
		return fmt.Appendf(text, "%#x : f32", math.Float32bits(float32(x)))
	}
	digits := strconv.FormatFloat(float64(x), 'g', -1, 64)
	mantissa, exponent, scaled := strings.Cut(digits, "e")
	if !strings.Contains(mantissa, ".") { // MLIR requires a decimal point
		mantissa += ".0"
	}
	if scaled {
		mantissa += "e" + exponent
	}
	return append(append(text, mantissa...), " : f32"...)
}

// Bool is a Boolean attribute.
type Bool bool

// Append implements [Attr].
func (f Bool) Append(text []byte) []byte { return strconv.AppendBool(text, bool(f)) }

// String is a string attribute.
type String string

// Append implements [Attr].
func (q String) Append(text []byte) []byte { return strconv.AppendQuote(text, string(q)) }

// Symbol is the name of a function, without the leading @.
type Symbol string

// Append implements [Attr].
func (s Symbol) Append(text []byte) []byte { return append(append(text, '@'), s...) }

// Alias is the name of an attribute alias of a [Module], without the leading #.
type Alias string

// Append implements [Attr].
func (a Alias) Append(text []byte) []byte { return append(append(text, '#'), a...) }

// Number is one element of a constant: its text in MLIR syntax and, unless it is complex, its
// value.
type Number struct {
	Text  string
	Value float64
	// HasValue reports whether Value is set.
	HasValue bool
}

// Dense is the value of a constant tensor. Exactly one of Splat, Numbers and Bytes is set, or none
// for an empty tensor.
type Dense struct {
	Type Type
	// Splat is the common value of all elements.
	Splat *Number
	// Numbers contains the elements in row-major order.
	Numbers []Number
	// Bytes contains the elements in row-major order, each in little-endian byte order.
	Bytes []byte
}

// Append implements [Attr].
func (d *Dense) Append(text []byte) []byte {
	text = d.AppendElements(append(text, "dense<"...))
	return d.Type.append(append(text, "> : "...))
}

// AppendElements appends the elements in MLIR syntax, without the enclosing dense< and >.
func (d *Dense) AppendElements(text []byte) []byte {
	switch {
	case d.Splat != nil:
		return append(text, d.Splat.Text...)
	case d.Bytes != nil:
		return fmt.Appendf(text, `"0x%s"`, strings.ToUpper(hex.EncodeToString(d.Bytes)))
	case len(d.Numbers) == 0:
		return text
	}
	next := 0
	return d.appendAxis(text, 0, &next)
}

func (d *Dense) appendAxis(text []byte, axis int, next *int) []byte {
	if axis == len(d.Type.Dims) {
		text = append(text, d.Numbers[*next].Text...)
		*next++
		return text
	}
	text = append(text, '[')
	for i := range d.Type.Dims[axis] {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = d.appendAxis(text, axis+1, next)
	}
	return append(text, ']')
}

// Depth returns the nesting depth of brackets in the text of the elements.
func (d *Dense) Depth() int {
	if len(d.Numbers) == 0 {
		return 0
	}
	return len(d.Type.Dims)
}
