package ir

import (
	"slices"
	"strconv"
	"strings"
)

// ConvDimensionNumbers contains the axis names of a convolution's input, kernel and output, such as
// b, 0, f.
type ConvDimensionNumbers [3][]string

// Append implements [Attr].
func (l ConvDimensionNumbers) Append(text []byte) []byte {
	text = append(text, "#stablehlo.conv<["...)
	text = append(text, strings.Join(l[0], ", ")...)
	text = append(text, "]x["...)
	text = append(text, strings.Join(l[1], ", ")...)
	text = append(text, "]->["...)
	text = append(text, strings.Join(l[2], ", ")...)
	return append(text, "]>"...)
}

// Enum is an enumeration value, such as #stablehlo<comparison_direction LT>.
type Enum struct{ Name, Value string }

// Append implements [Attr].
func (e Enum) Append(text []byte) []byte {
	text = append(append(append(text, "#stablehlo<"...), e.Name...), ' ')
	return append(append(text, e.Value...), '>')
}

// Struct is a structured attribute whose fields are dimensions, such as the dimension numbers of a
// dot_general.
type Struct struct {
	// Name is the name with its dialect, such as stablehlo.dot.
	Name   string
	Fields []Field
	// BracketOnNewLine writes the closing bracket on a new line.
	BracketOnNewLine bool
}

// Field is a field of a [Struct].
type Field struct {
	Name     string
	Dims     []int
	IsScalar bool
}

// Append implements [Attr].
func (f Struct) Append(text []byte) []byte {
	text = append(append(append(text, '#'), f.Name...), '<')
	for i, field := range f.Fields {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, "\n  "...), field.Name...), " = "...)
		if field.IsScalar {
			text = strconv.AppendInt(text, int64(field.Dims[0]), 10)
			continue
		}
		text = append(appendInts(append(text, '['), field.Dims), ']')
	}
	if f.BracketOnNewLine {
		text = append(text, '\n')
	}
	return append(text, '>')
}

// Dims returns the dimensions of the named field, or nil if there is no such field.
func (f Struct) Dims(name string) []int {
	for _, field := range f.Fields {
		if field.Name == name {
			return field.Dims
		}
	}
	return nil
}

// ParseAttr parses an attribute that the StableHLO builder has stored as text. It returns [Raw] for
// an attribute without a type in this package. The Append method of the result writes the same
// text.
func ParseAttr(text string) Attr {
	var a Attr
	switch {
	case strings.HasPrefix(text, "@"):
		return Symbol(text[1:])
	case strings.HasPrefix(text, "array<i64"):
		a = Ints(parseIntegers(strings.TrimPrefix(text, "array<i64")))
	case strings.HasPrefix(text, "dense<["):
		elements, _, _ := strings.Cut(text, ">")
		a = IntMatrix(slices.Collect(slices.Chunk(parseIntegers(elements), 2)))
	case strings.HasPrefix(text, "#stablehlo.conv<"):
		var l ConvDimensionNumbers
		rest := text
		for i := range l {
			var axes string
			_, rest, _ = strings.Cut(rest, "[")
			axes, rest, _ = strings.Cut(rest, "]")
			l[i] = strings.Split(axes, ", ")
		}
		a = l
	case strings.HasPrefix(text, "#stablehlo<"):
		name, word, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(text, "#stablehlo<"), ">"), " ")
		a = Enum{name, word}
	case strings.HasPrefix(text, "#stablehlo.") && strings.Contains(text, "\n"):
		a = parseStruct(text)
	default:
		return Raw(text)
	}
	if string(a.Append(nil)) != text {
		return Raw(text)
	}
	return a
}

func parseStruct(text string) Struct {
	lines := strings.Split(text, "\n")
	f := Struct{Name: strings.Trim(lines[0], "#<"), BracketOnNewLine: lines[len(lines)-1] == ">"}
	for _, line := range lines[1:] {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			dims := parseIntegers(value)
			f.Fields = append(f.Fields, Field{Name: name, Dims: dims, IsScalar: len(dims) == 1 &&
				!strings.HasPrefix(value, "[")})
		}
	}
	return f
}

func parseIntegers(text string) (all []int) {
	for _, word := range strings.FieldsFunc(text, func(c rune) bool { return c != '-' && (c < '0' || c > '9') }) {
		if n, err := strconv.Atoi(word); err == nil {
			all = append(all, n)
		}
	}
	return all
}
