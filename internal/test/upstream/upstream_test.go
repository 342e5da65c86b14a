package upstream_test

import (
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// root is the module whose go.mod pins the versions.
const root = "../.."

// pinned is the version of a module that go.mod requires, and where its sources are.
func pinned(t *testing.T, module string) (version, folder string) {
	t.Helper()
	command := exec.Command("go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", module)
	command.Dir = root
	out, err := command.Output()
	require.NoError(t, err, module)
	version, folder, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	require.DirExists(t, folder)
	return version, folder
}

func TestThePatchesApplyToThePinnedVersions(t *testing.T) {
	versions, folders := map[string]string{}, map[string]string{}
	together := map[string]string{} // the text of each file with all patches so far
	for _, p := range readPatches(t) {
		if versions[p.Module] == "" {
			versions[p.Module], folders[p.Module] = pinned(t, p.Module)
		}
		require.Equal(t, versions[p.Module], p.Version, "%s: see whether the new version has the defect still", p.Name)
		for _, f := range p.Files {
			path := filepath.Join(folders[p.Module], filepath.FromSlash(f.Name))
			text, err := os.ReadFile(path)
			require.NoError(t, err, p.Name)
			alone, err := f.apply(string(text), false)
			require.NoError(t, err, p.Name)
			_, err = parser.ParseFile(token.NewFileSet(), f.Name, alone, parser.SkipObjectResolution)
			assert.NoError(t, err, p.Name)
			if together[path] == "" {
				together[path] = string(text)
			}
			together[path], err = f.apply(together[path], true)
			require.NoError(t, err, "%s, after the patches before it", p.Name)
			for _, h := range f.Hunks {
				assert.LessOrEqual(t, h.Context, 3, "%s: %s line %d quotes more than it needs", p.Name, f.Name, h.From)
			}
		}
		assert.NoFileExists(t, filepath.Join(folders[p.Module], p.Test), "the test has a name of its own")
	}
}

func TestAPatchThatDoesNotFitIsRefused(t *testing.T) {
	files, err := parseDiff("diff --git a/x.go b/x.go\n--- a/x.go\n+++ b/x.go\n@@ -2,3 +2,4 @@ func\n b\n-c\n+C\n+D\n d")
	require.NoError(t, err)
	require.Len(t, files, 1)
	got, err := files[0].apply("a\nb\nc\nd\ne\n", false)
	require.NoError(t, err)
	assert.Equal(t, "a\nb\nC\nD\nd\ne\n", got)
	for _, text := range []string{"a\nb\nX\nd\ne\n", "b\nc\nd\n", "a\nb\nc"} {
		_, err := files[0].apply(text, false)
		assert.Error(t, err, "%q", text)
	}
	_, err = files[0].apply("b\nc\nd\n", true)
	assert.NoError(t, err, "the lines stand elsewhere")
	for _, diff := range []string{"what", "@@ -1 +1 @@\n-a\n+b", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n-a",
		"diff --git a/x b/x\n+++ b/x\n@@ -1 +1 @@\n*a"} {
		_, err := parseDiff(diff)
		assert.Error(t, err, "%q", diff)
	}
}

func TestEveryPatchIsWhole(t *testing.T) {
	index, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, p := range readPatches(t) {
		page, err := os.ReadFile(filepath.Join(p.Name, "README.md"))
		require.NoError(t, err)
		for _, heading := range []string{"## Problem", "## Reproduction", "## Change", "## Not included"} {
			assert.Contains(t, string(page), heading, p.Name)
		}
		assert.Contains(t, string(index), "]("+p.Name+"/README.md)", "the index")
		source, err := os.ReadFile(filepath.Join(p.Name, "test.go.txt"))
		require.NoError(t, err)
		formatted, err := format.Source(source)
		require.NoError(t, err, p.Name)
		assert.Equal(t, string(formatted), string(source), "%s: gofmt", p.Name)
		run := regexp.MustCompile("^(" + p.Run + ")$")
		tests := regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllSubmatch(source, -1)
		require.NotEmpty(t, tests, p.Name)
		for _, m := range tests {
			assert.Regexp(t, run, string(m[1]), "%s: Run leaves it out", p.Name)
		}
	}
	links := regexp.MustCompile(`\]\(([\w-]+)/README\.md\)`).FindAllSubmatch(index, -1)
	for _, m := range links {
		assert.FileExists(t, filepath.Join(string(m[1]), "change.patch"), "the index")
	}
}
