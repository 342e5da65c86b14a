package ir

import (
	"slices"
	"strconv"
	"strings"
)

// Layout names the axes of a convolution's operands and result, such as b, 0, f.
type Layout [3][]string

// Append implements [Attr].
func (l Layout) Append(text []byte) []byte {
	text = append(text, "#stablehlo.conv<["...)
	text = append(text, strings.Join(l[0], ", ")...)
	text = append(text, "]x["...)
	text = append(text, strings.Join(l[1], ", ")...)
	text = append(text, "]->["...)
	text = append(text, strings.Join(l[2], ", ")...)
	return append(text, "]>"...)
}

// Enum is a value of an enumeration, such as #stablehlo<comparison_direction LT>.
type Enum struct{ Name, Word string }

// Append implements [Attr].
func (e Enum) Append(text []byte) []byte {
	text = append(append(append(text, "#stablehlo<"...), e.Name...), ' ')
	return append(append(text, e.Word...), '>')
}

// Fields is a structured attribute. Each field is one dimension or a list of dimensions.
type Fields struct {
	// Name is the name with its dialect, such as stablehlo.dot.
	Name string
	List []Field
	// Apart writes the closing bracket on a separate line.
	Apart bool
}

// Field is a field of a structured attribute.
type Field struct {
	Name   string
	Dims   []int
	Single bool
}

// Append implements [Attr].
func (f Fields) Append(text []byte) []byte {
	text = append(append(append(text, '#'), f.Name...), '<')
	for i, field := range f.List {
		if i > 0 {
			text = append(text, ',')
		}
		text = append(append(append(text, "\n  "...), field.Name...), " = "...)
		if field.Single {
			text = strconv.AppendInt(text, int64(field.Dims[0]), 10)
			continue
		}
		text = append(appendInts(append(text, '['), field.Dims), ']')
	}
	if f.Apart {
		text = append(text, '\n')
	}
	return append(text, '>')
}

// Dims returns the dimensions of a field, or nil if there is no such field.
func (f Fields) Dims(name string) []int {
	for _, field := range f.List {
		if field.Name == name {
			return field.Dims
		}
	}
	return nil
}

// Read parses an attribute. It returns [Raw] for an attribute that has no other type in this
// package. The StableHLO builder stores the attributes of an op as text only, so each attribute is
// parsed once, when its statement is converted. [Attr.Append] of the result writes the same bytes
// as text.
func Read(text string) Attr {
	var a Attr
	switch {
	case strings.HasPrefix(text, "@"):
		return Symbol(text[1:])
	case strings.HasPrefix(text, "array<i64"):
		a = Ints(integers(strings.TrimPrefix(text, "array<i64")))
	case strings.HasPrefix(text, "dense<["):
		elements, _, _ := strings.Cut(text, ">")
		a = Rows(slices.Collect(slices.Chunk(integers(elements), 2)))
	case strings.HasPrefix(text, "#stablehlo.conv<"):
		var l Layout
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
		a = fields(text)
	default:
		return Raw(text)
	}
	if string(a.Append(nil)) != text {
		return Raw(text)
	}
	return a
}

func fields(text string) Fields {
	lines := strings.Split(text, "\n")
	f := Fields{Name: strings.Trim(lines[0], "#<"), Apart: lines[len(lines)-1] == ">"}
	for _, line := range lines[1:] {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			dims := integers(value)
			f.List = append(f.List, Field{Name: name, Dims: dims, Single: len(dims) == 1 && !strings.HasPrefix(value, "[")})
		}
	}
	return f
}

// integers returns the decimal integers in a text.
func integers(text string) (all []int) {
	for _, word := range strings.FieldsFunc(text, func(c rune) bool { return c != '-' && (c < '0' || c > '9') }) {
		if n, err := strconv.Atoi(word); err == nil {
			all = append(all, n)
		}
	}
	return all
}
