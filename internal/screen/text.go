package screen

import (
	"encoding/hex"
	"math"
	"strings"
)

// checkDims looks at the text after "tensor<": dimensions whose product no address can count abort
// the compiler.
func checkDims(s string) error {
	total := uint64(1)
	for i := 0; i < len(s); {
		start := i
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		if i == start || i == len(s) || s[i] != 'x' {
			return nil
		}
		var d uint64
		for _, c := range []byte(s[start:i]) {
			if d > math.MaxInt64/10-1 {
				return codeError("dimension %s of a tensor is too large", s[start:i])
			}
			d = d*10 + uint64(c-'0')
		}
		// 16 bytes is the largest element.
		if d > 0 && total > math.MaxInt64/16/d {
			return codeError("tensor<%s...> has more elements than memory can address", s[:i])
		}
		total *= max(d, 1)
		i++
	}
	return nil
}

func isName(c byte) bool {
	return c == '_' || c == '$' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// scanString reads a quoted MLIR string at the start of s: its text, with escapes resolved, and its
// length with the quotes. An unterminated one goes to the end.
func scanString(s string) (text string, n int) {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return unescape(s[1:i]), i + 1
		}
	}
	return unescape(s[1:]), len(s)
}

// unescape resolves \n, \t, \41 and other bytes after a backslash.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		i++
		if i+1 < len(s) {
			if b, err := hex.DecodeString(s[i : i+2]); err == nil {
				out = append(out, b[0])
				i++
				continue
			}
		}
		switch s[i] {
		case 'n':
			out = append(out, '\n')
		case 't':
			out = append(out, '\t')
		default:
			out = append(out, s[i])
		}
	}
	return string(out)
}

// readSymbol reads @name or @"name" at s[i].
func readSymbol(s string, i int) (name string, end int) {
	if i++; i < len(s) && s[i] == '"' {
		name, n := scanString(s[i:])
		return name, i + n
	}
	end = endOfSuffix(s, i)
	return s[i:end], end
}

// skipSpace passes white space and comments.
func skipSpace(s string, i int) int {
	for i < len(s) {
		switch {
		case s[i] == ' ' || s[i] == '\n' || s[i] == '\t' || s[i] == '\r':
			i++
		case strings.HasPrefix(s[i:], "//"):
			n := strings.IndexByte(s[i:], '\n')
			if n < 0 {
				return len(s)
			}
			i += n
		default:
			return i
		}
	}
	return i
}

func endOfName(s string, i int) int {
	for i < len(s) && isName(s[i]) {
		i++
	}
	return i
}

// endOfSuffix is the end of a name after %, @, # or !, which can have dashes.
func endOfSuffix(s string, i int) int {
	for i < len(s) && (isName(s[i]) || s[i] == '-') {
		i++
	}
	return i
}

// marks are the bytes at which a walk over brackets and lists has to look: a literal can hold
// thousands of numbers between two of them.
var marks = [256]bool{'"': true, '(': true, ')': true, '[': true, ']': true, '{': true, '}': true, '<': true, '>': true, '/': true}

// mark is the place of the first mark from s[i] on; the end of s if there is none.
func mark[T string | []byte](s T, i int) int {
	// By eights, as most bytes are none.
	for ; i+8 <= len(s); i += 8 {
		if e := s[i : i+8]; marks[e[0]] || marks[e[1]] || marks[e[2]] || marks[e[3]] || marks[e[4]] || marks[e[5]] || marks[e[6]] || marks[e[7]] {
			break
		}
	}
	for i < len(s) && !marks[s[i]] {
		i++
	}
	return i
}

// endOfGroup is the end of the group in brackets that starts at s[i]; 0 if it has none, or is
// nested too deep.
func endOfGroup(s string, i int) int {
	depth := 0
	for i = mark(s, i); i < len(s); i = mark(s, i) {
		switch c := s[i]; c {
		case '"':
			_, n := scanString(s[i:])
			i += n
			continue
		case '/':
			i = max(skipSpace(s, i), i+1) // a comment, or no more than a slash
			continue
		case '(', '[', '{', '<':
			if depth++; depth > maxNesting {
				return 0
			}
		case ')', ']', '}', '>':
			if c == '>' && s[i-1] == '-' {
				break
			}
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return 0
}

// splitList cuts at the commas outside brackets and strings. Elements are trimmed and not empty.
func splitList(s string) (list []string) {
	start := 0
	add := func(end int) {
		if e := strings.TrimSpace(s[start:end]); e != "" {
			if e = e[skipSpace(e, 0):]; e != "" {
				list = append(list, e)
			}
		}
		start = end + 1
	}
	for i := 0; i < len(s); {
		switch s[i] {
		case ',':
			add(i)
			i++
		case '"':
			_, n := scanString(s[i:])
			i += n
		case '/':
			if i = skipSpace(s, i); i < len(s) && s[i] == '/' {
				i++
			}
		case '(', '[', '{', '<':
			if i = endOfGroup(s, i); i == 0 {
				i = len(s)
			}
		default:
			i++
		}
	}
	if start < len(s) {
		add(len(s))
	}
	return list
}
