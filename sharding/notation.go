package sharding

import (
	"slices"
	"strconv"
	"strings"
)

// reservedNames lists words with a special meaning in the text form of annotations; see
// logical.ParseAnnotation. An axis with such a name is written in quotes.
var reservedNames = []string{"-", "none", "replicate"}

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
		strings.Trim(name, "0123456789") != "" && !slices.Contains(reservedNames, name)
}

// ParseSpec parses the notation of [Spec.String]. It ignores spaces between entries and names. The
// error for malformed text matches [ErrSyntax].
func ParseSpec(text string) (Spec, error) {
	s := &scanner{subject: "split " + strconv.Quote(text), text: text,
		hint: "write the axes of each dimension, as in replica,-,a+b"}
	var spec Spec
	if !s.consume("()") {
		for {
			if s.consume("replicated=") {
				spec.replicated = s.scanAxes()
				break
			}
			spec.dims = append(spec.dims, s.scanDim())
			if !s.consume(",") {
				break
			}
		}
	}
	s.expectEnd()
	if s.err != nil {
		return Spec{}, s.err
	}
	return spec, nil
}

func (s *scanner) scanDim() Dim {
	if s.consume("?") {
		return Dim{Open: true}
	}
	if s.peekWord() == "-" {
		s.pos++
		return Dim{}
	}
	return Dim{Axes: s.scanAxes(), Open: s.consume("?")}
}

// scanAxes reads axis names joined by "+".
func (s *scanner) scanAxes() (names []string) {
	for {
		names = append(names, s.scanAxis())
		if !s.consume("+") {
			return names
		}
	}
}

func (s *scanner) scanAxis() string {
	word := s.peekWord()
	if quoted, err := strconv.QuotedPrefix(s.text[s.pos:]); err == nil && quoted[0] == '"' {
		name, _ := strconv.Unquote(quoted) // QuotedPrefix has checked the syntax
		s.pos += len(quoted)
		return name
	}
	if !isBareName(word) {
		s.setError("expected the name of an axis, or - for a dimension that is not split")
		return ""
	}
	s.pos += len(word)
	return word
}

// peekWord skips spaces and returns the longest run of name characters at the current position,
// without consuming it.
func (s *scanner) peekWord() string {
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
	s := &scanner{subject: "mesh " + strconv.Quote(text), text: text,
		hint: "write axes with their sizes, as in replica=2,logical=4"}
	var axes []Axis
	if !s.consume("()") {
		for {
			axis := Axis{Name: s.peekWord()}
			s.pos += len(axis.Name)
			if !s.expect("=") {
				break
			}
			axis.Size = s.scanInt()
			if axes = append(axes, axis); !s.consume(",") {
				break
			}
		}
	}
	s.expectEnd()
	if s.err != nil {
		return Mesh{}, s.err
	}
	return NewMesh(axes...)
}
