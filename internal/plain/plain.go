package plain

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// EscapeText returns a text of any number of lines in printable form. Line ends and tabs are kept.
func EscapeText(s string) string {
	return escape(s, func(r rune) bool { return r == '\n' || r == '\t' })
}

// EscapeLine returns a text as one printable line. Line ends and tabs become spaces.
func EscapeLine(s string) string {
	return escape(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(s), func(rune) bool { return false })
}

// escape writes characters that are not printable as \u001b, which is also valid in JSON, and bytes
// that are not UTF-8 as \xff. Characters for which keep returns true are unchanged.
func escape(s string, keep func(rune) bool) string {
	var b strings.Builder
	start := 0 // start of the text that is not in b yet
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

// Writer writes text as returned by [EscapeText]. A character may be split over several writes. A
// Writer is not safe for concurrent use.
type Writer struct {
	w          io.Writer
	incomplete []byte // start of an incomplete character
}

// NewWriter returns a Writer that writes to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes p except for an incomplete character at its end.
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

// Flush writes an incomplete character.
func (w *Writer) Flush() error {
	rest := w.incomplete
	w.incomplete = nil
	if len(rest) == 0 {
		return nil
	}
	_, err := io.WriteString(w.w, EscapeText(string(rest)))
	return err
}
