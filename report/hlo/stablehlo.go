package hlo

import (
	"regexp"
	"slices"
	"strings"
)

type operation struct {
	name              string
	results, operands []string
	text              string // after the name, without the regions
	regions           []*region
}

type region struct {
	args []string
	ops  []*operation
}

// parseRegions parses a text in MLIR's generic or custom form. An operation ends at the end of its
// line, except for the contents of its brackets. The parser does not verify the text. It skips text
// that it does not support.
func parseRegions(text []byte) *region {
	r := &parser{s: string(text)}
	top := &region{}
	for r.i < len(r.s) {
		top.ops = append(top.ops, r.region().ops...) // skips an unmatched closing bracket
	}
	return top
}

type parser struct {
	s        string
	i, depth int
}

// maxRegions bounds the nesting of regions. Compilers reject deeper nesting.
const maxRegions = 256

func (r *parser) skipSpace() {
	for r.i < len(r.s) {
		switch c := r.s[r.i]; {
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			r.i++
		case strings.HasPrefix(r.s[r.i:], "//"):
			r.skipLine()
		default:
			return
		}
	}
}

func (r *parser) skipLine() {
	if n := strings.IndexByte(r.s[r.i:], '\n'); n >= 0 {
		r.i += n
		return
	}
	r.i = len(r.s)
}

func (r *parser) region() *region {
	if r.depth++; r.depth > maxRegions {
		r.i = len(r.s)
	}
	defer func() { r.depth-- }()
	out := &region{}
	for r.skipSpace(); r.i < len(r.s); r.skipSpace() {
		if r.s[r.i] == '}' {
			r.i++
			break
		}
		op := r.operation()
		if strings.HasPrefix(op.name, "^") {
			out.args = append(out.args, op.operands...)
			continue
		}
		out.ops = append(out.ops, op)
	}
	return out
}

func (r *parser) operation() *operation {
	op := &operation{}
	var text strings.Builder
	from, depth := r.i, 0
	keep := func() { text.WriteString(r.s[from:r.i]) }
	for end := false; r.i < len(r.s) && !end; {
		switch c := r.s[r.i]; c {
		case '"':
			r.i += quotedLength(r.s[r.i:])
			continue
		case '/':
			if strings.HasPrefix(r.s[r.i:], "//") {
				keep()
				r.skipLine()
				from = r.i
				continue
			}
		case '\n':
			if depth <= 0 {
				keep()
				r.skipSpace()
				from, end = r.i, !continued.MatchString(r.s[r.i:min(r.i+16, len(r.s))])
				continue
			}
		case '(', '[', '<':
			depth++
		case ')', ']':
			depth--
		case '>':
			if r.i > 0 && r.s[r.i-1] != '-' {
				depth--
			}
		case '{':
			if r.opensRegion() {
				keep()
				r.i++
				op.regions = append(op.regions, r.region())
				from = r.i
				continue
			}
			depth++
		case '}':
			if depth <= 0 {
				end = true
				continue
			}
			depth--
		}
		r.i++
	}
	keep()
	op.parse(text.String())
	return op
}

var (
	// continued matches the start of a line that continues the operation of the previous line.
	continued = regexp.MustCompile(`^(cond|do|reducer|attributes)\b|^[(:,]`)
	// attributes matches the start of an attribute list after its bracket. It does not match
	// operations.
	attributes = regexp.MustCompile(`^\s*([}?]|("[^"]*"|[\w$.]+)\s*[=,}])`)
	header     = regexp.MustCompile(`^(?:(%[^=]*?)\s*=\s*)?"?([\w$.^-]+)"?`)
	valueName  = regexp.MustCompile(`%[\w$.#-]+`)
	state      = regexp.MustCompile(`(%[\w$.-]+)\s*=\s*(%[\w$.#-]+)`)
	pack       = regexp.MustCompile(`:\d+`)
)

// opensRegion reports whether a bracket opens a region instead of an attribute list.
func (r *parser) opensRegion() bool {
	return !attributes.MatchString(r.s[r.i+1 : min(r.i+200, len(r.s))])
}

func quotedLength(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}

func (op *operation) parse(text string) {
	m := header.FindStringSubmatchIndex(text)
	if m == nil {
		return
	}
	if m[2] >= 0 {
		op.results = valueName.FindAllString(pack.ReplaceAllString(text[m[2]:m[3]], ""), -1)
	}
	op.name, op.text = text[m[4]:m[5]], text[m[1]:]
	switch op.name {
	case "call", "return":
		op.name = "func." + op.name
	case "stablehlo.constant":
		return // the text may be long
	}
	if pairs := state.FindAllStringSubmatch(op.text, -1); pairs != nil {
		for _, pair := range pairs {
			op.operands = append(op.operands, pair[2])
			for _, region := range op.regions {
				region.args = append(region.args, pair[1])
			}
		}
		return
	}
	op.operands = valueName.FindAllString(op.text, -1)
}

func (op *operation) defines(name string) bool {
	name, _, _ = strings.Cut(name, "#")
	return slices.Contains(op.results, name)
}
