package plain

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestControlCharactersAreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "",
		"plain, tab\tand\nlines":              "plain, tab\tand\nlines",
		"Größe 漢字 😀 \u00a0x \ufffd \\":        "Größe 漢字 😀 \u00a0x \ufffd \\",
		"\x1b[2J\x1b]0;title\a":               `\u001b[2J\u001b]0;title\u0007`,
		"over\rwritten\b\x7f\x00":             `over\u000dwritten\u0008\u007f\u0000`,
		"\u009b31m \u202eturned\u2066":        `\u009b31m \u202eturned\u2066`,
		"bytes \xff\xc3 \x9b":                 `bytes \xff\xc3 \x9b`,
		"line\u2028end \U000e0041 zero\u200b": `line\u2028end \udb40\udc41 zero\u200b`,
	} {
		assert.Equal(t, want, EscapeText(text))
		assert.Equal(t, want, EscapeText(EscapeText(text)), "once is enough")
	}
	assert.Equal(t, `a b c d \u000de`, EscapeLine("a\nb\tc\r\nd \re"))
	// Within JSON an escape is the character.
	b, err := json.Marshal("\u009b \u202e \x7f \U000e0041")
	require.NoError(t, err)
	var back string
	require.NoError(t, json.Unmarshal([]byte(EscapeText(string(b))), &back))
	assert.Equal(t, "\u009b \u202e \x7f \U000e0041", back)
}

func TestWriterWithSplitCharacters(t *testing.T) {
	text := "Größe 漢字 😀\x1b[0m \xff\xf0\x9f end \xf0\x9f"
	for size := 1; size <= len(text); size++ {
		var out strings.Builder
		w := NewWriter(&out)
		for rest := text; rest != ""; {
			n, err := w.Write([]byte(rest[:min(size, len(rest))]))
			require.NoError(t, err)
			rest = rest[n:]
		}
		require.NoError(t, w.Flush())
		require.NoError(t, w.Flush())
		require.Equal(t, EscapeText(text), out.String(), size)
	}
	full := errors.New("full")
	_, err := NewWriter(failing{full}).Write([]byte("x"))
	require.ErrorIs(t, err, full)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func FuzzText(f *testing.F) {
	f.Add("a\x1b[2J\xff\u202e😀\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, shown := range []string{EscapeText(text), EscapeLine(text)} {
			if !utf8.ValidString(shown) || strings.ContainsAny(shown, "\x1b\r\b\a\x00\x7f\u009b\u202e") {
				t.Fatalf("%q is shown as %q", text, shown)
			}
		}
		if strings.ContainsAny(EscapeLine(text), "\n\t") {
			t.Fatalf("%q has lines", EscapeLine(text))
		}
	})
}
