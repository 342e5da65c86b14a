package plain

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns a text of any number of lines as it can be shown. Line ends and tabs stay.
func Text(s string) string {
	return escape(s, func(r rune) bool { return r == '\n' || r == '\t' })
}

// Line returns a text as one line: each line end and tab is a space.
func Line(s string) string {
	return escape(strings.NewReplacer("\r\n", " ", "\n", " ", "\t", " ").Replace(s), func(rune) bool { return false })
}

// escape writes what is not shown as \u001b, which is the same character within JSON, and bytes
// that are no characters as \xff.
func escape(s string, keep func(rune) bool) string {
	var b strings.Builder
	from := 0 // what follows is not in b yet
	for at := 0; at < len(s); {
		r, n := utf8.DecodeRuneInString(s[at:])
		broken := r == utf8.RuneError && n == 1
		if !broken && (strconv.IsGraphic(r) || keep(r)) {
			at += n
			continue
		}
		b.WriteString(s[from:at])
		switch {
		case broken:
			fmt.Fprintf(&b, `\x%02x`, s[at])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		at += n
		from = at
	}
	if from == 0 {
		return s
	}
	b.WriteString(s[from:])
	return b.String()
}

// Writer writes text as [Text] makes it. A character may come in several pieces. One goroutine uses
// a Writer at a time.
type Writer struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write writes p but for a character that p ends within.
func (w *Writer) Write(p []byte) (int, error) {
	text := append(w.rest, p...)
	whole := len(text)
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if at := len(text) - back; utf8.RuneStart(text[at]) {
			if !utf8.FullRune(text[at:]) {
				whole = at
			}
			break
		}
	}
	if _, err := io.WriteString(w.w, Text(string(text[:whole]))); err != nil {
		return 0, err
	}
	w.rest = append([]byte(nil), text[whole:]...)
	return len(p), nil
}

// Flush writes what is left of a character that has not ended.
func (w *Writer) Flush() error {
	rest := w.rest
	w.rest = nil
	if len(rest) == 0 {
		return nil
	}
	_, err := io.WriteString(w.w, Text(string(rest)))
	return err
}
