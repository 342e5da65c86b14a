package sharding

import (
	"slices"
	"strconv"
	"strings"
)

// reserved are words that the notation of splits gives a meaning of their own; see ParseAnnotation of
// package logical. An axis of such a name stands in quotes.
var reserved = []string{"-", "none", "replicate"}

// String returns the spec in the notation of splits, which is that of flags, files and messages, too:
// replica,-,a+b. There is an entry for each dimension: its axes joined by +, the major axis first, or -
// for a dimension that stays whole. An open dimension ends in ?, and explicitly replicated axes follow as
// replicated=x+y. A scalar is (). A name that would read as something else stands in quotes, as Go's
// strings do. [ParseSpec] is the inverse.
func (s Spec) String() string {
	entries := make([]string, 0, len(s.dims)+1)
	for _, dim := range s.dims {
		entries = append(entries, dim.String())
	}
	if len(s.replicated) > 0 {
		entries = append(entries, "replicated="+joined(s.replicated))
	}
	if len(entries) == 0 {
		return "()"
	}
	return strings.Join(entries, ",")
}

// String returns the dimension as it appears in [Spec.String].
func (d Dim) String() string {
	switch text := joined(d.Axes); {
	case d.Open:
		return text + "?"
	case text == "":
		return "-"
	default:
		return text
	}
}

func joined(axes []string) string {
	names := make([]string, len(axes))
	for i, name := range axes {
		if names[i] = name; !bare(name) {
			names[i] = strconv.Quote(name)
		}
	}
	return strings.Join(names, "+")
}

// bare reports whether the name of an axis reads as one without quotes.
func bare(name string) bool {
	return name != "" && strings.IndexFunc(name, func(r rune) bool { return !isNameRune(r) }) < 0 &&
		strings.Trim(name, "0123456789") != "" && !slices.Contains(reserved, name)
}

// ParseSpec reads a spec in the notation of [Spec.String]; spaces between its parts are skipped. The
// error of another text matches [ErrSyntax].
func ParseSpec(text string) (Spec, error) {
	s := &scanner{form: "split " + strconv.Quote(text), text: text, hint: "write the axes of each dimension, as in replica,-,a+b"}
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

// dim reads an entry of a split.
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

// axes reads names that + joins.
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
		name, _ := strconv.Unquote(quoted) // which it is
		s.pos += len(quoted)
		return name
	}
	if !bare(word) {
		s.fail("expected the name of an axis, or - for a dimension that stays whole")
		return ""
	}
	s.pos += len(word)
	return word
}

// word skips spaces and returns the characters of names that come next.
func (s *scanner) word() string {
	s.skipSpace()
	rest := s.text[s.pos:]
	if end := strings.IndexFunc(rest, func(r rune) bool { return !isNameRune(r) }); end >= 0 {
		return rest[:end]
	}
	return rest
}

// String returns the mesh as replica=2,logical=4, the slowest axis first, and one without axes as ().
// [ParseMesh] is the inverse.
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

// ParseMesh reads a mesh as [Mesh.String] writes it; spaces between its parts are skipped. The error of
// another text matches [ErrSyntax]; axes that make no mesh have the errors of [NewMesh].
func ParseMesh(text string) (Mesh, error) {
	s := &scanner{form: "mesh " + strconv.Quote(text), text: text, hint: "write axes with their sizes, as in replica=2,logical=4"}
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
