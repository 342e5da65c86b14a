package plain

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// EscapeText escapes all characters that are not printable, except for line breaks and tabs.
func EscapeText(s string) string {
	return escape(s, func(r rune) bool { return r == '\n' || r == '\t' })
}

// EscapeLine escapes all characters that are not printable. It replaces line breaks and tabs by spaces.
func EscapeLine(s string) string {
	return escape(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(s), func(rune) bool { return false })
}

// escape writes a character that is not printable as \u001b, which is also valid in JSON, and an
// invalid UTF-8 byte as \xff. Characters for which keep returns true are unchanged.
func escape(s string, keep func(rune) bool) string {
	var b strings.Builder
	start := 0 // start of the text that is not yet copied to b
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		invalid := r == utf8.RuneError && n == 1
		if !invalid && (strconv.IsGraphic(r) || keep(r)) {
			i += n
			continue
		}
		b.WriteString(s[start:i])
		switch {
		case invalid:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
		start = i
	}
	if start == 0 {
		return s
	}
	b.WriteString(s[start:])
	return b.String()
}

// Writer escapes text like [EscapeText] and writes the result to another writer. A UTF-8 sequence
// may be split over several calls of Write. A Writer is not safe for concurrent use.
type Writer struct {
	w          io.Writer
	incomplete []byte // start of an incomplete character
}

// NewWriter returns a Writer that writes escaped text to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write escapes and writes p. An incomplete UTF-8 sequence at the end of p is kept for the next call.
func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.incomplete, p...)
	end := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if at := len(text) - back; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				end = at
			}
			break
		}
	}
	if _, err := io.WriteString(w.w, EscapeText(string(text[:end]))); err != nil {
		return 0, err
	}
	w.incomplete = append([]byte(nil), text[end:]...)
	return len(p), nil
}

// Flush writes the bytes of an incomplete UTF-8 sequence.
func (w *Writer) Flush() error {
	rest := w.incomplete
	w.incomplete = nil
	if len(rest) == 0 {
		return nil
	}
	_, err := io.WriteString(w.w, EscapeText(string(rest)))
	return err
}
