package imports

import (
	_ "embed"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:embed law.txt
var table string

var update = flag.Bool("update", false, "draw the picture in docs/architecture.md again")

func parsed(t *testing.T, text string) Law {
	t.Helper()
	law, err := Parse(text)
	require.NoError(t, err)
	return law
}

func TestTheModuleKeepsTheLaw(t *testing.T) {
	found, err := Read("../..")
	require.NoError(t, err)
	assert.Contains(t, found, "cluster_resolver/tpuapi", "the nested module")
	assert.True(t, found["pjrt/internal/capi"].Sources[C])
	assert.True(t, found["strategy"].Sources["sharding"])
	for _, fault := range parsed(t, table).Check(found) {
		assert.Fail(t, fault)
	}
	for path, is := range found {
		for to := range is.Sources {
			if InHarness(to) && !InHarness(path) {
				assert.Failf(t, "the product imports harness", "%s imports %s", path, to)
			}
			if strings.HasPrefix(path, "examples/") && strings.Contains("/"+to+"/", "/internal/") {
				assert.Failf(t, "users cannot copy the example", "%s imports %s", path, to)
			}
		}
	}
}

// The block of docs/architecture.md that the law draws.
const (
	opening = "<!-- drawn from internal/imports/law.txt -->\n```text\n"
	closing = "```\n<!-- end of the picture -->\n"
)

func TestThePictureIsDrawnFromTheLaw(t *testing.T) {
	name := filepath.Join("..", "..", "docs", "architecture.md")
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(page), opening)
	require.True(t, ok, "no picture")
	picture, after, ok := strings.Cut(rest, closing)
	require.True(t, ok, "no end of the picture")
	drawn := parsed(t, table).Draw()
	for line := range strings.Lines(drawn) {
		assert.LessOrEqual(t, len(line), 100, line)
	}
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(before+opening+drawn+closing+after), 0o644))
		return
	}
	assert.Equal(t, drawn, picture, "go test ./internal/imports -update draws it again")
}

func TestThePageSaysWhatEachPackageIs(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "architecture.md"))
	require.NoError(t, err)
	var first strings.Builder // the first cells of its table
	for line := range strings.Lines(string(page)) {
		if cell, _, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok {
			first.WriteString(cell)
		}
	}
	for _, layer := range parsed(t, table).Layers {
		for _, r := range layer.Rooms {
			inner := strings.Contains(r.Path, "internal/") || strings.HasPrefix(r.Path, "examples/") ||
				strings.HasPrefix(r.Path, "testdata/")
			if !inner && !r.ForTests && r.Path != "cluster_resolver/tpuapi" {
				assert.Contains(t, first.String(), "`"+r.Path+"`", "the table of packages")
			}
		}
	}
}

func sources(paths ...string) Imports {
	i := Imports{Sources: map[string]bool{}, Tests: map[string]bool{}}
	for _, p := range paths {
		if test, ok := strings.CutPrefix(p, "test:"); ok {
			i.Tests[test] = true
		} else {
			i.Sources[p] = true
		}
	}
	return i
}

func TestCheckFindsWhatIsWrong(t *testing.T) {
	const law = `
ground
  low:
  kit (for tests):
objects
  mid: low
  top: low mid | other
  other: C
`
	whole := func() map[string]Imports {
		return map[string]Imports{"low": sources(), "kit": sources(), "mid": sources("low", "test:low", "test:mid"),
			"other": sources(C),
			"top":   sources("low", "mid", "test:other", "test:kit")}
	}
	require.Empty(t, parsed(t, law).Check(whole()))
	for name, c := range map[string]struct {
		path string
		now  Imports
		want string
	}{
		"a package without a line": {"fresh", sources(), "fresh is not in law.txt"},
		"an import that is not allowed": {"mid", sources("low", "top"),
			"mid imports top, which law.txt does not allow; with it the line is: mid: low top"},
		"a lower one that is not allowed": {"other", sources(C, "low"),
			"other imports low, which law.txt does not allow"},
		"an arrow that no source uses": {"mid", sources(), "law.txt lets mid import low, and it does not"},
		"C where it is not allowed":    {"mid", sources("low", C), "mid imports C, which"},
		"a test that points up": {"low", sources("test:top"),
			"the tests of low import top, which is not lower"},
		"C in a test": {"other", sources(C, "test:"+C), "the tests of other import C"},
		"a test's arrow that is not used": {"top", sources("low", "mid"),
			"law.txt need not let the tests of top import other"},
		"a test of a package not in it": {"low", sources("test:gone"),
			"the tests of low import gone, which is not lower"},
		"an import of a package not in it": {"mid", sources("low", "gone"), "mid imports gone, which"},
	} {
		t.Run(name, func(t *testing.T) {
			found := whole()
			found[c.path] = c.now
			faults := parsed(t, law).Check(found)
			require.Len(t, faults, 1)
			assert.Contains(t, faults[0], c.want)
		})
	}
	found := whole()
	delete(found, "top")
	assert.Equal(t, []string{"top is in law.txt and has no Go file"}, parsed(t, law).Check(found))
	up := parsed(t, "all\n  a: b\n  b:\n").Check(map[string]Imports{"a": sources("b"), "b": sources()})
	assert.Equal(t, []string{"law.txt lets a import b, which is not lower"}, up)
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"  a: b\n", "layer\n  a b\n", "layer\n  a:\nnext\n  a:\n"} {
		_, err := Parse(text)
		assert.ErrorContains(t, err, "law.txt:", text)
	}
}

func TestDrawLeavesOutArrowsThatOthersLead(t *testing.T) {
	law := parsed(t, "ground\n  low:\nvalues\n  a: low\n  b: a low\nobjects\n  kit (for tests): a\n  c: C a b low\n")
	rule := "---------+" + strings.Repeat("-", 86) + "\n"
	assert.Equal(t, " objects | c -> b  C\n"+rule+" values  | b -> a\n         | a\n"+rule+" ground  | low\n",
		law.Draw())
}
