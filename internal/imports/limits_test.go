package imports

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:embed size.txt
var counts string

// With -update, the measured counts become the new limits. A commit that raises a limit explains why.
func TestTheModuleKeepsItsSize(t *testing.T) {
	limits, err := ParseLimits(counts)
	require.NoError(t, err)
	found, err := Measure("../..")
	require.NoError(t, err)
	now, faults := limits.Check(found)
	if !*update {
		for _, fault := range faults {
			assert.Fail(t, fault)
		}
		return
	}
	text := counts
	for i, limit := range limits {
		if limit.Subject != Other { // which is a bound for all, not a count of one
			text = strings.Replace(text, limit.String()+"\n", now[i].String()+"\n", 1)
		}
	}
	require.NoError(t, os.WriteFile("size.txt", []byte(text), 0o644))
}

// sized writes a package of some files and returns its size.
func sized(t *testing.T, files map[string]string) Size {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Join(root, "p"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(root, "p", name), []byte("package p\n"+text+"\n"), 0o644))
	}
	sizes, err := Measure(root)
	require.NoError(t, err)
	return sizes["p"]
}

func TestMeasureCounts(t *testing.T) {
	s := sized(t, map[string]string{
		"a.go": "import \"fmt\"\n// A is exported.\ntype A[T any] struct{ b }\nfunc (a *A[T]) M() { fmt.Println(a.n) " +
			"}\nfunc (A[T]) m() { F() }",
		"b.go":      "type b struct{ n int }\nfunc (b) Known() {}\nvar X, y = 1, 2",
		"c.go":      "func F() { var a A[int]; a.Known(); a.m() }",
		"a_test.go": "func TestA() {}",
	})
	assert.Equal(t, Size{Files: 3, Lines: 6 + 4 + 2, Arrows: 4, Up: 1, Names: 5,
		Methods: map[string]int{"A": 2, "b": 1}, Comments: 1}, s)
}

func TestMeasureCountsMarkerWords(t *testing.T) {
	s := sized(t, map[string]string{
		"a.go":      "//go:generate says\n// F says nothing.\n// It returns 1.\nfunc F() int { return 1 } // gives",
		"a_test.go": "// Those of the test.",
	})
	assert.Equal(t, []int{3, 2}, []int{s.Comments, s.Marked})
	assert.Equal(t, 667, s.markersPerThousand())
	var page Size
	page.countPage("# Title\n\nIt says so.\n\n| says |\n\n```text\nsays\n```\nEnd.\n")
	assert.Equal(t, []int{3, 1}, []int{page.Comments, page.Marked})
	assert.Zero(t, Size{}.markersPerThousand())
}

func TestUpCountsTheArrowsOfACircle(t *testing.T) {
	list := func(names ...string) map[string]bool {
		set := map[string]bool{}
		for _, n := range names {
			set[n] = true
		}
		return set
	}
	assert.Zero(t, up(map[string]map[string]bool{"a": list("b", "c"), "b": list("c")}))
	assert.Equal(t, 1, up(map[string]map[string]bool{"a": list("b"), "b": list("c"), "c": list("a")}))
	assert.Equal(t, 2, up(map[string]map[string]bool{"a": list("b", "d"), "b": list("a"), "c": list("d"),
		"d": list("c")}))
}

func TestLimitsFindWhatIsTooLarge(t *testing.T) {
	limits, err := ParseLimits(
		"# why\nmodule: lines 10\ninternal/test: lines 2\nbig: lines 6 up 0\nbig.T: methods 2\nother: lines 4\n")
	require.NoError(t, err)
	found := map[string]Size{
		"big":   {Lines: 6, Methods: map[string]int{"T": 2}},
		"small": {Lines: 4},

		"internal/test/kit": {Lines: 1}, "nested/internal/test/kit": {Lines: 1},
	}
	now, faults := limits.Check(found)
	assert.Empty(t, faults)
	assert.Equal(t, limits, now)
	found["big"] = Size{Lines: 7, Up: 1, Methods: map[string]int{"T": 3}}
	found["small"] = Size{Lines: 5}
	found["internal/test/kit"] = Size{Lines: 2}
	_, faults = limits.Check(found)
	assert.Equal(t, []string{"module has lines 12, and size.txt allows 10",
		"internal/test has lines 3, and size.txt allows 2", "big has lines 7, and size.txt allows 6",
		"big has up 1, and size.txt allows 0", "big.T has methods 3, and size.txt allows 2",
		"small has lines 5, and size.txt allows 4"}, faults)
	found["big"] = Size{Lines: 202}
	for most, want := range map[string]int{"200": 0, "199": 1} { // one percent is tolerated
		limits, err := ParseLimits("big: lines " + most)
		require.NoError(t, err)
		_, faults = limits.Check(found)
		assert.Len(t, faults, want, most)
	}
	for text, want := range map[string]string{
		"gone: lines 1": "gone has no lines", "big.U: methods 1": "big.U has no methods",
		"big: weight 1": "big has no weight",
	} {
		limits, err := ParseLimits(text)
		require.NoError(t, err)
		_, faults := limits.Check(found)
		assert.Equal(t, []string{"size.txt: " + want}, faults)
	}
	for _, text := range []string{"big", "big: lines", "big: lines many"} {
		_, err := ParseLimits(text)
		assert.ErrorContains(t, err, "size.txt:1:")
	}
}
