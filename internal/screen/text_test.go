package screen

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// groupByBytes is endOfGroup as it is told: each byte is looked at.
func groupByBytes(s string, i int) int {
	depth := 0
	for i = skipSpace(s, i); i < len(s); i = skipSpace(s, i) {
		switch {
		case s[i] == '"':
			_, n := scanString(s[i:])
			i += n
			continue
		case strings.IndexByte("([{<", s[i]) >= 0:
			if depth++; depth > maxNesting {
				return 0
			}
		case strings.IndexByte(")]}>", s[i]) >= 0 && !(s[i] == '>' && s[i-1] == '-'):
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
	return 0
}

// shallowByBytes is shallow as it is told.
func shallowByBytes(s string) bool {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			_, n := scanString(s[i:])
			i += n - 1
		case strings.IndexByte("([{", s[i]) >= 0:
			if depth++; depth > maxNesting {
				return false
			}
		case strings.IndexByte(")]}", s[i]) >= 0:
			depth--
		}
	}
	return true
}

func TestWalksThatPassWhatHasNoMeaningEndWhereThoseByBytesDo(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	words := []string{"(", "[", "{", "<", ")", "]", "}", ">", "->", "-", "/", "//", "// a ) comment\n", "\n", " ", ",", `"`, `"a ] string"`,
		`"\"]"`, `\`, "12, ", "1024, 1025, 1026, 1027", "x", "é", strings.Repeat("0, 1, ", 20), strings.Repeat("[", maxNesting)}
	ends := 0
	for range 20_000 {
		var b strings.Builder
		b.WriteString(words[random.IntN(4)])
		for range random.IntN(24) {
			word := random.IntN(len(words))
			if word == len(words)-1 && random.IntN(20) > 0 { // seldom
				word = 0
			}
			b.WriteString(words[word])
		}
		s := b.String()
		end := endOfGroup(s, 0)
		require.Equal(t, groupByBytes(s, 0), end, "%q", s)
		require.Equal(t, shallowByBytes(s), shallow([]byte(s)), "%q", s)
		if end > 0 {
			ends++
		}
	}
	require.Greater(t, ends, 2_000, "groups that close")
}
