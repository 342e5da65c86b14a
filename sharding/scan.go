package sharding

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// ErrSyntax is matched by all errors for malformed text. The message describes the problem, its
// byte offset and the text at the offset. If the text is well formed but this package cannot
// represent its meaning, the error also matches [errors.ErrUnsupported].
var ErrSyntax = errkind.New(errkind.ValueError, "sharding: syntax")

// scanner reads the text formats of this package. After the first error, all read methods fail and
// err stays unchanged.
type scanner struct {
	subject string // for error messages
	hint    string // correction for error messages
	text    string
	pos     int
	err     error
}

func (s *scanner) setError(format string, args ...any) {
	if s.err == nil {
		const span = 24
		at := min(max(s.pos, 0), len(s.text))
		context := s.text[at:min(at+span, len(s.text))]
		s.err = &errkind.Fault{Op: "sharding: " + s.subject, Match: ErrSyntax, Class: errkind.ValueError, Hint: s.hint,
			Reason: fmt.Sprintf("%s at offset %d, near %q", fmt.Sprintf(format, args...), s.pos, context)}
	}
}

func (s *scanner) setUnsupported(format string, args ...any) {
	if s.err == nil {
		s.setError(format, args...)
		s.err = unsupportedError{s.err}
	}
}

// unsupportedError is a syntax error that also matches errors.ErrUnsupported.
type unsupportedError struct{ error }

func (u unsupportedError) Unwrap() []error { return []error{u.error, errors.ErrUnsupported} }

func (s *scanner) skipSpace() {
	for s.pos < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.pos]) >= 0 {
		s.pos++
	}
}

// consume skips spaces, and advances past token if it follows. It reports whether token followed.
func (s *scanner) consume(token string) bool {
	if s.err != nil {
		return false
	}
	s.skipSpace()
	if !strings.HasPrefix(s.text[s.pos:], token) {
		return false
	}
	s.pos += len(token)
	return true
}

func (s *scanner) expect(token string) bool {
	if s.consume(token) {
		return true
	}
	s.setError("expected %q", token)
	return false
}

func (s *scanner) expectEnd() {
	s.skipSpace()
	if s.pos < len(s.text) {
		s.setError("unexpected text after the end")
	}
}

// scanList reads comma-separated items between open and close. The list can be empty.
func (s *scanner) scanList(open, close string, item func()) {
	if !s.expect(open) || s.consume(close) {
		return
	}
	for {
		item()
		if s.err != nil || s.consume(close) {
			return
		}
		if !s.expect(",") {
			return
		}
	}
}

// scanInt reads an unsigned decimal number of at most 18 digits.
func (s *scanner) scanInt() int {
	if s.err != nil {
		return 0
	}
	s.skipSpace()
	start := s.pos
	for s.pos < len(s.text) && s.text[s.pos] >= '0' && s.text[s.pos] <= '9' {
		s.pos++
	}
	digits := s.text[start:s.pos]
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		s.pos = start
		s.setError("expected a number")
	}
	return int(n)
}

// scanQuoted reads an MLIR string literal.
func (s *scanner) scanQuoted() string {
	if !s.expect(`"`) {
		return ""
	}
	var b strings.Builder
	for {
		rest := s.text[s.pos:]
		end := strings.IndexAny(rest, "\"\\\n")
		if end < 0 {
			end = len(rest)
		}
		b.WriteString(rest[:end])
		s.pos += end
		switch rest = rest[end:]; {
		case rest == "" || rest[0] == '\n':
			s.setError("missing closing quote")
			return ""
		case rest[0] == '"':
			s.pos++
			return b.String()
		}
		c, size := unescape(rest[1:])
		if size == 0 {
			s.setError("unknown escape in a string")
			return ""
		}
		b.WriteByte(c)
		s.pos += 1 + size
	}
}

// unescape decodes an MLIR escape sequence. text starts after the backslash. size is the length of
// the sequence, or 0 if the sequence is invalid.
func unescape(text string) (c byte, size int) {
	if text == "" {
		return 0, 0
	}
	if i := strings.IndexByte(`"\nt`, text[0]); i >= 0 {
		return "\"\\\n\t"[i], 1
	}
	code, err := strconv.ParseUint(text[:min(2, len(text))], 16, 8)
	if err != nil || len(text) < 2 {
		return 0, 0
	}
	return byte(code), 2
}

// scanSymbol reads the name of an MLIR symbol after '@'.
func (s *scanner) scanSymbol() string {
	if !s.expect("@") {
		return ""
	}
	if s.pos < len(s.text) && s.text[s.pos] == '"' {
		return s.scanQuoted()
	}
	start := s.pos
	for s.pos < len(s.text) && isSymbolByte(s.text[s.pos], s.pos == start) {
		s.pos++
	}
	if s.pos == start {
		s.setError("expected a name")
	}
	return s.text[start:s.pos]
}

func isSymbolByte(c byte, first bool) bool {
	if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' {
		return true
	}
	return !first && (c >= '0' && c <= '9' || c == '.' || c == '$')
}
