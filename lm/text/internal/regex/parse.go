package regex

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Compile parses an expression. An error names the construct that is invalid or not supported, and
// its byte offset.
func Compile(expression string) (re *Regexp, err error) {
	p := &parser{text: expression}
	defer func() {
		if e := recover(); e != nil {
			syntax, ok := e.(syntaxError)
			if !ok {
				panic(e)
			}
			re, err = nil, syntax
		}
	}()
	n := p.parseAlternation()
	if p.pos < len(p.text) {
		p.fail("an unmatched )")
	}
	c := &compiler{}
	c.emitNode(n)
	c.appendInstruction(instruction{op: opMatch})
	return &Regexp{code: c.code}, nil
}

type syntaxError struct {
	pos    int
	reason string
}

func (e syntaxError) Error() string { return fmt.Sprintf("%s at byte %d", e.reason, e.pos) }

// node is a node of the syntax tree.
type node struct {
	kind     nodeKind
	set      *charSet
	children []*node // operands; a group or a repetition has one
	min, max int
	mode     quantifierMode
	op       opcode // of an assertion
	negated  bool
}

type nodeKind uint8

const (
	nodeSet nodeKind = iota
	nodeSequence
	nodeAlternation
	nodeRepeat
	nodeLook
	nodeBehind
	nodeAtomic
	nodeAssertion
)

type options struct{ ignoreCase, dotAll, extended bool }

type parser struct {
	text  string
	pos   int
	depth int
	options
}

func (p *parser) fail(format string, args ...any) {
	panic(syntaxError{p.pos, fmt.Sprintf(format, args...)})
}

func (p *parser) hasMore() bool { return p.pos < len(p.text) }

// accept consumes s if the remaining input begins with s.
func (p *parser) accept(s string) bool {
	if strings.HasPrefix(p.text[p.pos:], s) {
		p.pos += len(s)
		return true
	}
	return false
}

func (p *parser) nextRune() rune {
	if !p.hasMore() {
		p.fail("the end of the expression")
	}
	r, n := utf8.DecodeRuneInString(p.text[p.pos:])
	p.pos += n
	return r
}

// maxDepth limits the nesting of groups and classes.
const maxDepth = 200

func (p *parser) parseAlternation() *node {
	if p.depth++; p.depth > maxDepth {
		p.fail("more than %d nested groups", maxDepth)
	}
	outer := p.options
	defer func() { p.depth--; p.options = outer }()
	n := &node{kind: nodeAlternation}
	for {
		n.children = append(n.children, p.parseSequence())
		if !p.accept("|") {
			return n
		}
	}
}

func (p *parser) parseSequence() *node {
	n := &node{kind: nodeSequence}
	for p.hasMore() && p.text[p.pos] != '|' && p.text[p.pos] != ')' {
		if p.extended {
			if strings.IndexByte(" \t\r\n\f\v", p.text[p.pos]) >= 0 {
				p.pos++
				continue
			}
			if p.text[p.pos] == '#' {
				for p.hasMore() && p.nextRune() != '\n' {
				}
				continue
			}
		}
		if item := p.parseItem(); item != nil {
			n.children = append(n.children, p.parseQuantifiers(item))
		}
	}
	return n
}

// parseItem parses one character, class, group or assertion. It returns nil for a group that only
// sets options.
func (p *parser) parseItem() *node {
	switch {
	case p.accept("("):
		return p.parseGroup()
	case p.accept("["):
		return &node{kind: nodeSet, set: p.parseClass()}
	case p.accept("."):
		s := &charSet{negated: true}
		if !p.dotAll {
			s.ranges = []rune{'\n', '\n'}
		}
		return &node{kind: nodeSet, set: s.buildASCII()}
	case p.accept("^"):
		return &node{kind: nodeAssertion, op: opLineStart}
	case p.accept("$"):
		return &node{kind: nodeAssertion, op: opLineEnd}
	case p.accept(`\A`):
		return &node{kind: nodeAssertion, op: opTextStart}
	case p.accept(`\z`):
		return &node{kind: nodeAssertion, op: opTextEnd}
	case p.accept(`\Z`):
		return &node{kind: nodeAssertion, op: opLastEnd}
	case p.accept(`\b`):
		return &node{kind: nodeAssertion, op: opBoundary}
	case p.accept(`\B`):
		return &node{kind: nodeAssertion, op: opBoundary, negated: true}
	case strings.IndexByte("*+?", p.text[p.pos]) >= 0:
		p.fail("a quantifier without a target")
	}
	s := &charSet{}
	if p.accept(`\`) {
		p.parseEscape(s, false)
	} else {
		r := p.nextRune()
		p.addRange(s, r, r)
	}
	return &node{kind: nodeSet, set: s.buildASCII()}
}

func (p *parser) parseGroup() *node {
	n := &node{kind: nodeSequence}
	switch {
	case p.accept("?:"):
	case p.accept("?="):
		n.kind = nodeLook
	case p.accept("?!"):
		n.kind, n.negated = nodeLook, true
	case p.accept("?<="):
		n.kind = nodeBehind
	case p.accept("?<!"):
		n.kind, n.negated = nodeBehind, true
	case p.accept("?>"):
		n.kind = nodeAtomic
	case p.accept("?#"):
		for p.nextRune() != ')' {
		}
		return nil
	case p.accept("?<"), p.accept("?P<"):
		for p.nextRune() != '>' {
		}
	case p.accept("?"):
		return p.parseOptionGroup()
	}
	n.children = []*node{p.parseAlternation()}
	if !p.accept(")") {
		p.fail("a group without )")
	}
	if n.kind == nodeBehind {
		if n.set = singleSet(n.children[0]); n.set == nil {
			p.fail("a lookbehind of more than one character is not supported")
		}
	}
	return n
}

// parseOptionGroup parses (?i:...) and (?i). The options of (?i) apply up to the end of the
// enclosing group.
func (p *parser) parseOptionGroup() *node {
	outer, on := p.options, true
	for {
		switch r := p.nextRune(); r {
		case '-':
			on = false
		case 'i':
			p.ignoreCase = on
		case 'm':
			p.dotAll = on
		case 'x':
			p.extended = on
		case ')': // to the end of the enclosing group, with its other alternatives
			inner := p.options
			n := &node{kind: nodeSequence, children: []*node{p.parseAlternation()}}
			p.options = inner
			return n
		case ':':
			n := &node{kind: nodeSequence, children: []*node{p.parseAlternation()}}
			p.options = outer
			if !p.accept(")") {
				p.fail("a group without )")
			}
			return n
		default:
			p.fail("the option %q is not supported", r)
		}
	}
}

// singleSet returns the character set of a syntax node that always matches one character, or nil.
func singleSet(n *node) *charSet {
	switch {
	case n.kind == nodeSet:
		return n.set
	case n.kind == nodeSequence && len(n.children) == 1:
		return singleSet(n.children[0])
	case n.kind == nodeAlternation:
		union := &charSet{}
		for _, sub := range n.children {
			s := singleSet(sub)
			if s == nil {
				return nil
			}
			union.subsets = append(union.subsets, s)
		}
		return union.buildASCII()
	}
	return nil
}

// maxRepeat is the largest repetition count.
const maxRepeat = 1000

func (p *parser) parseQuantifiers(item *node) *node {
	for p.hasMore() {
		n := &node{kind: nodeRepeat, children: []*node{item}, max: -1}
		braces := false
		switch {
		case p.accept("*"):
		case p.accept("+"):
			n.min = 1
		case p.accept("?"):
			n.max = 1
		case p.parseBraces(n):
			braces = true
		default:
			return item
		}
		switch {
		case p.accept("?"):
			n.mode = lazy
		case !braces && p.accept("+"): // behind braces, + is a quantifier of its own
			n.mode = possessive
		}
		item = n
	}
	return item
}

// parseBraces parses {n}, {n,}, {,m} and {n,m}. It returns false for other, literal braces.
func (p *parser) parseBraces(n *node) bool {
	end := strings.IndexByte(p.text[p.pos:], '}')
	if p.text[p.pos] != '{' || end < 2 {
		return false
	}
	low, high, comma := strings.Cut(p.text[p.pos+1:p.pos+end], ",")
	number := func(s string) (int, bool) {
		if s == "" {
			return 0, true
		}
		v, err := strconv.ParseUint(s, 10, 16)
		return int(v), err == nil
	}
	var ok, ok2 bool
	n.min, ok = number(low)
	n.max, ok2 = number(high)
	if !ok || !ok2 || low == "" && high == "" {
		return false
	}
	if !comma {
		n.max = n.min
	} else if high == "" {
		n.max = -1
	}
	if n.min > maxRepeat || n.max > maxRepeat || n.max >= 0 && n.max < n.min {
		p.fail("a repetition of %s: numbers are ordered and at most %d", p.text[p.pos:p.pos+end+1], maxRepeat)
	}
	p.pos += end + 1
	return true
}

// parseClass parses a character class. The opening bracket was already consumed.
func (p *parser) parseClass() *charSet {
	if p.depth++; p.depth > maxDepth {
		p.fail("more than %d nested classes", maxDepth)
	}
	defer func() { p.depth-- }()
	s := &charSet{negated: p.accept("^")}
	for first := true; ; first = false {
		switch {
		case !first && p.accept("]"):
			return s.buildASCII()
		case p.accept("[:"):
			negated := p.accept("^")
			end := strings.Index(p.text[p.pos:], ":]")
			if end < 0 {
				p.fail("a class without :]")
			}
			p.addProperty(s, p.text[p.pos:p.pos+end], negated)
			p.pos += end + 2
			continue
		case p.accept("["):
			s.subsets = append(s.subsets, p.parseClass())
			continue
		case p.accept("&&"):
			p.fail("an intersection of classes is not supported")
		}
		low, single := p.parseClassMember(s)
		if !single {
			continue
		}
		high := low
		if rest := p.text[p.pos:]; len(rest) > 1 && rest[0] == '-' && rest[1] != ']' {
			p.pos++
			if high, single = p.parseClassMember(nil); !single || high < low {
				p.fail("a range that does not end with a later character")
			}
		}
		p.addRange(s, low, high)
	}
}

// parseClassMember parses a member of a class. It returns a single character, or adds several to s.
func (p *parser) parseClassMember(s *charSet) (r rune, single bool) {
	if !p.accept(`\`) {
		return p.nextRune(), true
	}
	only := &charSet{}
	p.parseEscape(only, true)
	if len(only.ranges) == 2 && only.ranges[0] == only.ranges[1] && !only.negated {
		return only.ranges[0], true
	}
	if s == nil {
		return 0, false
	}
	s.subsets = append(s.subsets, only)
	return 0, false
}

// addRange adds the characters from low to high to s. With the option i, it also adds their case
// variants.
func (p *parser) addRange(s *charSet, low, high rune) {
	s.ranges = append(s.ranges, low, high)
	if !p.ignoreCase {
		return
	}
	for r := low; r <= min(high, 0x1ffff); r++ {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			if f < low || f > high {
				s.ranges = append(s.ranges, f, f)
			}
		}
	}
}

// shorthands maps the letter of an escape such as \d to a property. An upper-case letter means the
// complement.
var shorthands = map[rune]string{'d': "digit", 'w': "word", 's': "space", 'h': "xdigit"}

// parseEscape parses an escape sequence after its backslash and adds its characters to s, which is
// empty.
func (p *parser) parseEscape(s *charSet, inClass bool) {
	var r rune
	switch c := p.nextRune(); c {
	case 'd', 'D', 'w', 'W', 's', 'S', 'h', 'H':
		p.addProperty(s, shorthands[unicode.ToLower(c)], unicode.IsUpper(c))
		return
	case 'p', 'P':
		end := strings.IndexByte(p.text[p.pos:], '}')
		if !p.accept("{") || end < 0 {
			p.fail("a property without braces")
		}
		negated := c == 'P'
		if p.accept("^") {
			negated, end = !negated, end-1
		}
		p.addProperty(s, p.text[p.pos:p.pos+end-1], negated)
		p.pos += end
		return
	case 'n':
		r = '\n'
	case 'r':
		r = '\r'
	case 't':
		r = '\t'
	case 'f':
		r = '\f'
	case 'v':
		r = '\v'
	case 'a':
		r = '\a'
	case 'e':
		r = 0x1b
	case 'x':
		r = p.parseHex(2, true)
	case 'u':
		r = p.parseHex(4, false)
	case 'b':
		if !inClass {
			p.fail(`\b here is not supported`)
		}
		r = '\b'
	default:
		if c < utf8.RuneSelf && (unicode.IsLetter(c) || unicode.IsDigit(c)) && c != '0' {
			p.fail(`\%c is not supported`, c)
		}
		if r = c; c == '0' {
			r = 0
		}
	}
	if inClass {
		s.ranges = []rune{r, r}
	} else {
		p.addRange(s, r, r)
	}
}

// parseHex parses a hexadecimal number of at most the given number of digits. If braces is set, the
// number may be enclosed in braces.
func (p *parser) parseHex(digits int, braces bool) rune {
	end := p.pos
	text := ""
	if braces && p.accept("{") {
		if end = strings.IndexByte(p.text[p.pos:], '}'); end < 0 {
			p.fail("a number without }")
		}
		text = p.text[p.pos : p.pos+end]
		p.pos += end + 1
	} else {
		for end < len(p.text) && end-p.pos < digits && strings.IndexByte("0123456789abcdefABCDEF", p.text[end]) >= 0 {
			end++
		}
		text = p.text[p.pos:end]
		p.pos = end
	}
	v, err := strconv.ParseUint(text, 16, 32)
	if err != nil || v > unicode.MaxRune {
		p.fail("%q is no character", text)
	}
	return rune(v)
}

// Quote returns an expression that matches exactly the given text.
func Quote(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strings.ContainsRune(`\.+*?()|[]{}^$#&-~`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}
