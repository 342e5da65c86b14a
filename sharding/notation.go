package sharding

import (
	"slices"
	"strconv"
	"strings"
)

// reserved lists words with a special meaning in the text form of annotations; see
// logical.ParseAnnotation. An axis with such a name is written in quotes.
var reserved = []string{"-", "none", "replicate"}

// String returns the spec as text, for example "replica,-,a+b". This notation is also used in
// flags, files and error messages. Each dimension has one entry: its axes joined by "+" with the
// major axis first, or "-" for a dimension that is not split. The entry of an open dimension ends
// in "?". Explicitly replicated axes follow as "replicated=x+y". A scalar is "()". Ambiguous axis
// names are quoted as Go strings. [ParseSpec] parses this notation.
func (s Spec) String() string {
	entries := make([]string, 0, len(s.dims)+1)
	for _, dim := range s.dims {
		entries = append(entries, dim.String())
	}
	if len(s.replicated) > 0 {
		entries = append(entries, "replicated="+joinAxes(s.replicated))
	}
	if len(entries) == 0 {
		return "()"
	}
	return strings.Join(entries, ",")
}

// String returns the dimension in the notation of [Spec.String].
func (d Dim) String() string {
	switch text := joinAxes(d.Axes); {
	case d.Open:
		return text + "?"
	case text == "":
		return "-"
	default:
		return text
	}
}

func joinAxes(axes []string) string {
	names := make([]string, len(axes))
	for i, name := range axes {
		if names[i] = name; !isBareName(name) {
			names[i] = strconv.Quote(name)
		}
	}
	return strings.Join(names, "+")
}

// isBareName reports whether an axis name can be written without quotes.
func isBareName(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool { return !isNameRune(r) }) < 0 &&
		strings.Trim(name, "0123456789") != "" && !slices.Contains(reserved, name)
}

// ParseSpec parses the notation of [Spec.String]. It ignores spaces between entries and names. The
// error for malformed text matches [ErrSyntax].
func ParseSpec(text string) (Spec, error) {
	s := &scanner{form: "split " + strconv.Quote(text), text: text,
		hint: "write the axes of each dimension, as in replica,-,a+b"}
	var spec Spec
	if !s.accept("()") {
		for {
			if s.accept("replicated=") {
				spec.replicated = s.axes()
				break
			}
			spec.dims = append(spec.dims, s.dim())
			if !s.accept(",") {
				break
			}
		}
	}
	s.end()
	if s.err != nil {
		return Spec{}, s.err
	}
	return spec, nil
}

// dim reads the entry of one dimension.
func (s *scanner) dim() Dim {
	if s.accept("?") {
		return Dim{Open: true}
	}
	if s.word() == "-" {
		s.pos++
		return Dim{}
	}
	return Dim{Axes: s.axes(), Open: s.accept("?")}
}

// axes reads axis names joined by "+".
func (s *scanner) axes() (names []string) {
	for {
		names = append(names, s.axis())
		if !s.accept("+") {
			return names
		}
	}
}

func (s *scanner) axis() string {
	word := s.word()
	if quoted, err := strconv.QuotedPrefix(s.text[s.pos:]); err == nil && quoted[0] == '"' {
		name, _ := strconv.Unquote(quoted) // QuotedPrefix has checked the syntax
		s.pos += len(quoted)
		return name
	}
	if !isBareName(word) {
		s.fail("expected the name of an axis, or - for a dimension that is not split")
		return ""
	}
	s.pos += len(word)
	return word
}

// word skips spaces and returns the longest run of name characters at the current position, without
// consuming it.
func (s *scanner) word() string {
	s.skipSpace()
	rest := s.text[s.pos:]
	if end := strings.IndexFunc(rest, func(r rune) bool { return !isNameRune(r) }); end >= 0 {
		return rest[:end]
	}
	return rest
}

// String returns the mesh as text, slowest axis first, for example "replica=2,logical=4". A mesh
// without axes is "()". [ParseMesh] parses this notation.
func (m Mesh) String() string {
	if len(m.axes) == 0 {
		return "()"
	}
	parts := make([]string, len(m.axes))
	for i, axis := range m.axes {
		parts[i] = axis.Name + "=" + strconv.Itoa(axis.Size)
	}
	return strings.Join(parts, ",")
}

// ParseMesh parses the notation of [Mesh.String]. It ignores spaces around names and sizes. The
// error for malformed text matches [ErrSyntax]. ParseMesh also returns the errors of [NewMesh].
func ParseMesh(text string) (Mesh, error) {
	s := &scanner{form: "mesh " + strconv.Quote(text), text: text,
		hint: "write axes with their sizes, as in replica=2,logical=4"}
	var axes []Axis
	if !s.accept("()") {
		for {
			axis := Axis{Name: s.word()}
			s.pos += len(axis.Name)
			if !s.expect("=") {
				break
			}
			axis.Size = s.integer()
			if axes = append(axes, axis); !s.accept(",") {
				break
			}
		}
	}
	s.end()
	if s.err != nil {
		return Mesh{}, s.err
	}
	return NewMesh(axes...)
}
