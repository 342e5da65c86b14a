package regex

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func find(t *testing.T, expression, text string) string {
	re, err := Compile(expression)
	require.NoError(t, err, expression)
	from, to := re.Find(&Matcher{}, []byte(text), 0)
	if from < 0 {
		return "-"
	}
	return text[:from] + "[" + text[from:to] + "]" + text[to:]
}

// Expressions that the standard library does not support, with Ruby's semantics.
func TestConstructs(t *testing.T) {
	for _, c := range [][3]string{
		{`\s+(?!\S)|\s+`, "   x", "[  ] x"}, {`\s+(?!\S)|\s+`, " x", "[ ]x"}, {`\s+(?!\S)|\s+`, "  ", "[  ]"},
		{`a++a`, "aaa", "-"}, {`a?+a`, "a", "-"}, {`(?>a+)b`, "aab", "[aab]"}, {`(?:ab)++`, "ababa", "[abab]a"},
		{`a+?`, "aaa", "[a]aa"}, {`a{2,3}?`, "aaaa", "[aa]aa"}, {`a{,2}`, "aaa", "[aa]a"}, {`a{2}`, "aaa", "[aa]a"},
		{`a{x`, "a{x", "[a{x]"},
		{`(?<=\d)x`, "ax1x", "ax1[x]"}, {`(?<!\d)x`, "1x x", "1x [x]"}, {`(?<=a|b)c`, "xcbc", "xcb[c]"},
		{`(?=b)`, "ab", "a[]b"},
		{`[a-c[x-z]]+`, "1bzx", "1[bzx]"}, {`[^(\s|[.,!?])]+`, "(ab.c", "([ab].c"}, {`[[:alpha:]_]+`, "1é_2", "1[é_]2"},
		{`[^\p{L}\p{N}]`, "a.", "a[.]"},
		{`(?i:'s|'LL)`, "x'ſ", "x['ſ]"}, {`(?i)k`, "\u212a", "[\u212a]"}, {`(?i:[r-t])+`, "SRT", "[SRT]"},
		{`a(?i:b)c`, "aBc", "[aBc]"}, {`a(?i:b)c`, "aBC", "-"},
		{`\s+$`, "a \n b", "a[ ]\n b"}, {`^b`, "a\nb", "a\n[b]"}, {`a.c`, "a\nc", "-"}, {`(?m:a.c)`, "a\nc", "[a\nc]"},
		{`a\z`, "a\n", "-"}, {`a\Z`, "a\n", "[a]\n"}, {`\Ab`, "ab", "-"},
		{`\bb`, "ab b", "ab [b]"}, {`\Bb`, "ab b", "a[b] b"}, {`(?x: a b # c
 c)`, "abc", "[abc]"}, {`(a|b(?i)c|D)e`, "de bde", "de [bde]"}, {`\x41\u0042\x{43}`, "ABC", "[ABC]"},
		{`\p{^L}`, "a1", "a[1]"}, {`\P{L}`, "a1", "a[1]"},
		{`[一-龥ࠀ-一가-퟿]+`, "a世界가b", "a[世界가]b"}, {`[\]\-a]+`, "b]-a", "b[]-a]"}, {`[]a]`, "]", "[]]"},
		{`(?:)*a`, "a", "[a]"}, {`(?:a|)*b`, "aab", "[aab]"}, {`\h+`, "gF0", "g[F0]"},
		{`.`, "\xff", "[\xff]"}, {`\p{Han}+`, "a漢", "a[漢]"},
	} {
		assert.Equal(t, c[2], find(t, c[0], c[1]), "%q in %q", c[0], c[1])
	}
	for expression, want := range map[string]string{
		`(`: "a group without )", `a)`: "unmatched )", `*`: "without a target", `[a`: "the end", `\1`: "not supported",
		`[a&&b]`: "intersection", `\p{Xyz}`: "not known", `(?<=ab)`: "more than one character",
		`a{3,2}`: "repetition", `a{5000}`: "at most 1000", `(?:(?:a{900}b){900}){900}`: "too large",
		`(?:(?:(?:){1000}){1000}){1000}`: "too large", `[z-a]`: "range", `\x{110000}`: "no character", `(?y:a)`: "option",
		strings.Repeat("(", 300) + strings.Repeat(")", 300): "nested", strings.Repeat("[", 300): "nested", `\`: "the end",
		`\p`: "braces", `[[:x`: ":]",
	} {
		_, err := Compile(expression)
		assert.ErrorContains(t, err, want, "%.40q", expression)
	}
}

// Expressions that both know match the same as in the standard library.
func TestMatchesLikeTheStandardLibrary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	atoms := []string{"a", "b", "[ab]", "[^a]", "(?:ab|a)", "(?:a|b|)", "\\w", "é", "(?:b+a?)", "."}
	quantifiers := []string{"", "", "*", "+", "?", "*?", "+?", "{1,2}", "{2}", "??"}
	for range 4000 {
		var e strings.Builder
		for range 1 + r.IntN(5) {
			e.WriteString(atoms[r.IntN(len(atoms))] + quantifiers[r.IntN(len(quantifiers))])
			if r.IntN(6) == 0 {
				e.WriteString("|")
			}
		}
		var text strings.Builder
		for range r.IntN(12) {
			text.WriteString([]string{"a", "b", "é", " "}[r.IntN(4)])
		}
		expression := strings.ReplaceAll(e.String(), `\w`, "[0-9A-Za-z_é]")
		want := "-"
		if at := regexp.MustCompile(expression).FindStringIndex(text.String()); at != nil {
			want = text.String()[:at[0]] + "[" + text.String()[at[0]:at[1]] + "]" + text.String()[at[1]:]
		}
		require.Equal(t, want, find(t, expression, text.String()), "%q in %q", expression, text.String())
	}
}

// No expression takes exponential time.
func TestTimeIsPolynomial(t *testing.T) {
	begin := time.Now()
	for _, e := range []string{`(?:a*)*b`, `(?:a|a)*b`, `(?:a|aa)+$b`, `(?:a?){30}a{30}b`, `a*a*a*a*a*a*a*a*b`,
		`(?=(?:a|a)*b)a`, `(?>(?:a|a)*b)`} {
		assert.Equal(t, "-", find(t, e, strings.Repeat("a", 40)), e)
	}
	assert.Less(t, time.Since(begin), 30*time.Second)
}

func FuzzCompile(f *testing.F) {
	f.Add(`[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`, "it's 12\xff")
	f.Fuzz(func(t *testing.T, expression, text string) {
		re, err := Compile(expression)
		if err != nil || len(text) > 100 || len(re.code) > 1000 {
			return
		}
		if from, to := re.Find(&Matcher{}, []byte(text), 0); from > to || to > len(text) {
			t.Fatal(from, to)
		}
	})
}
