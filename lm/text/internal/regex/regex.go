package regex

import (
	"unicode"
	"unicode/utf8"
)

// Regexp is a compiled expression. It is immutable and safe for concurrent use, if each goroutine
// uses its own Matcher.
type Regexp struct {
	code []instruction
}

type opcode uint8

const (
	opSet       opcode = iota // one character of set
	opRun                     // min to max characters of set
	opSplit                   // first at x, then at y
	opJump                    // to x
	opLook                    // a lookahead: the code at x; y follows
	opAtomic                  // the code at x, without backtracking into it; y follows
	opBehind                  // the character before is in set
	opLineStart               // ^
	opLineEnd                 // $
	opTextStart               // \A
	opTextEnd                 // \z
	opLastEnd                 // \Z
	opBoundary                // \b
	opMatch
)

type quantifierMode uint8

const (
	greedy quantifierMode = iota
	lazy
	possessive
)

type instruction struct {
	op                  opcode
	mode                quantifierMode
	negated             bool // of opLook, opBehind and opBoundary
	set                 *charSet
	min, max            int // of opRun; max -1 is unlimited
	target, alternative int
}

// Matcher is the working memory of searches. It is not safe for concurrent use.
type Matcher struct {
	stack []backtrackState
	steps int
	// seen contains the states already visited in the current attempt, after its first memoizeAfter
	// steps. A visited state would fail again, so skipping it makes the time of an attempt polynomial.
	seen map[[2]int]struct{}
}

// backtrackState is the state in which matching resumes when the current alternative fails. For a
// repeated character set (opRun), limit determines which other numbers of characters to try.
type backtrackState struct{ pc, pos, limit int }

const memoizeAfter = 4096

// Find returns the leftmost match at or after offset, or -1, -1. Bytes that are not UTF-8 match as
// the character U+FFFD.
func (re *Regexp) Find(m *Matcher, text []byte, offset int) (start, end int) {
	for start = offset; start <= len(text); {
		if end := re.matchAt(m, text, 0, start); end >= 0 {
			return start, end
		}
		if start == len(text) {
			break
		}
		start += runeLen(text, start)
	}
	return -1, -1
}

func runeLen(text []byte, i int) int {
	if text[i] < utf8.RuneSelf {
		return 1
	}
	_, n := utf8.DecodeRune(text[i:])
	return n
}

// matchAt runs the compiled code from instruction pc. It returns the end of the match, or -1.
func (re *Regexp) matchAt(m *Matcher, text []byte, pc, pos int) int {
	base, seen, steps := len(m.stack), m.seen, m.steps
	m.seen, m.steps = nil, 0
	defer func() { m.stack, m.seen, m.steps = m.stack[:base], seen, steps }()
	m.stack = append(m.stack, backtrackState{pc, pos, -1})
	for len(m.stack) > base {
		top := &m.stack[len(m.stack)-1]
		pc, pos = top.pc, top.pos
		if top.limit >= 0 { // an opRun that tries another number of characters
			pos = re.backtrack(m, text, top)
			pc++
		} else {
			m.stack = m.stack[:len(m.stack)-1]
		}
		if end := re.execute(m, text, pc, pos); end >= 0 {
			return end
		}
	}
	return -1
}

// backtrack retries the repeated character set (opRun) on top of the stack with one character more
// or less, and returns the new position. It pops the state when there is no other number of
// characters to try.
func (re *Regexp) backtrack(m *Matcher, text []byte, top *backtrackState) int {
	in := &re.code[top.pc]
	if in.mode == lazy {
		// limit is how many more characters may follow.
		pos := top.pos + runeLen(text, top.pos)
		top.limit--
		top.pos = pos
		if top.limit == 0 || pos == len(text) || !in.set.matchesAt(text, pos) {
			m.stack = m.stack[:len(m.stack)-1]
		}
		return pos
	}
	_, n := utf8.DecodeLastRune(text[:top.pos])
	pos := top.pos - n
	top.pos = pos
	if pos <= top.limit {
		m.stack = m.stack[:len(m.stack)-1]
	}
	return pos
}

// execute runs the code without backtracking. It returns the end of the match, or -1 on failure.
func (re *Regexp) execute(m *Matcher, text []byte, pc, pos int) int {
	for {
		in := &re.code[pc]
		if m.steps++; m.steps > memoizeAfter && in.op != opJump {
			key := [2]int{pc, pos}
			if _, again := m.seen[key]; again {
				return -1
			}
			if m.seen == nil {
				m.seen = map[[2]int]struct{}{}
			}
			m.seen[key] = struct{}{}
		}
		ok := true
		switch in.op {
		case opMatch:
			return pos
		case opSet:
			if ok = pos < len(text) && in.set.matchesAt(text, pos); ok {
				pos += runeLen(text, pos)
			}
		case opRun:
			pos, ok = re.matchRun(m, text, pc, pos)
		case opSplit:
			m.stack = append(m.stack, backtrackState{in.alternative, pos, -1})
			pc = in.target
			continue
		case opJump:
			pc = in.target
			continue
		case opLook:
			if (re.matchAt(m, text, in.target, pos) >= 0) == in.negated {
				return -1
			}
			pc = in.alternative
			continue
		case opAtomic:
			if pos = re.matchAt(m, text, in.target, pos); pos < 0 {
				return -1
			}
			pc = in.alternative
			continue
		case opBehind:
			ok = (pos > 0 && in.set.matchesBefore(text, pos)) != in.negated
		case opLineStart:
			ok = pos == 0 || text[pos-1] == '\n' && pos < len(text)
		case opLineEnd:
			ok = pos == len(text) || text[pos] == '\n'
		case opTextStart:
			ok = pos == 0
		case opTextEnd:
			ok = pos == len(text)
		case opLastEnd:
			ok = pos == len(text) || pos == len(text)-1 && text[pos] == '\n'
		case opBoundary:
			before, after := pos > 0 && wordSet.matchesBefore(text, pos), pos < len(text) && wordSet.matchesAt(text, pos)
			ok = (before != after) != in.negated
		}
		if !ok {
			return -1
		}
		pc++
	}
}

// matchRun matches a repeated character set. It matches as many or as few characters as possible,
// depending on the mode, and pushes a state to try other numbers of characters later.
func (re *Regexp) matchRun(m *Matcher, text []byte, pc, pos int) (int, bool) {
	in, n := &re.code[pc], 0
	most := in.max
	if in.mode == lazy {
		most = in.min
	}
	least := pos // the position after min characters
	for (most < 0 || n < most) && pos < len(text) && in.set.matchesAt(text, pos) {
		pos += runeLen(text, pos)
		if n++; n == in.min {
			least = pos
		}
	}
	if n < in.min {
		return pos, false
	}
	switch {
	case in.mode == lazy && in.max != in.min && pos < len(text) && in.set.matchesAt(text, pos):
		more := in.max - in.min
		if in.max < 0 {
			more = len(text)
		}
		m.stack = append(m.stack, backtrackState{pc, pos, more})
	case in.mode == greedy && pos > least:
		m.stack = append(m.stack, backtrackState{pc, pos, least})
	}
	return pos, true
}

type charSet struct {
	negated bool
	ranges  []rune // pairs of the first and the last character
	tables  []*unicode.RangeTable
	subsets []*charSet
	ascii   [utf8.RuneSelf / 64]uint64 // bitmap of the ASCII members, after negation
}

func (s *charSet) contains(r rune) bool {
	return s.containsRune(r) != s.negated
}

func (s *charSet) containsRune(r rune) bool {
	for i := 0; i < len(s.ranges); i += 2 {
		if s.ranges[i] <= r && r <= s.ranges[i+1] {
			return true
		}
	}
	for _, t := range s.tables {
		if unicode.Is(t, r) {
			return true
		}
	}
	for _, sub := range s.subsets {
		if sub.contains(r) {
			return true
		}
	}
	return false
}

// buildASCII precomputes which ASCII characters are in the set, and returns s.
func (s *charSet) buildASCII() *charSet {
	for r := range rune(utf8.RuneSelf) {
		if s.contains(r) {
			s.ascii[r/64] |= 1 << (r % 64)
		}
	}
	return s
}

func (s *charSet) matchesAt(text []byte, i int) bool {
	if b := text[i]; b < utf8.RuneSelf {
		return s.ascii[b/64]>>(b%64)&1 != 0
	}
	r, _ := utf8.DecodeRune(text[i:])
	return s.contains(r)
}

func (s *charSet) matchesBefore(text []byte, i int) bool {
	r, _ := utf8.DecodeLastRune(text[:i])
	return s.contains(r)
}
