package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", name))
	require.NoError(t, err)
	return string(data)
}

// takesUpdate returns the folders whose tests write golden files.
func takesUpdate(t *testing.T) (folders []string) {
	flag := regexp.MustCompile(`(?m)^var update = flag\.Bool\("update"`)
	require.NoError(t, filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		if data, err := os.ReadFile(name); err != nil || !flag.Match(data) {
			return err
		}
		folder, err := filepath.Rel("..", filepath.Dir(name))
		folders = append(folders, "./"+filepath.ToSlash(folder))
		return err
	}))
	require.Contains(t, folders, "./internal/test/docs")
	return folders
}

func TestContributingNamesWhatIsThere(t *testing.T) {
	page, makefile := read(t, "CONTRIBUTING.md"), read(t, "Makefile")+read(t, "long.mk")
	_, goldens, ok := strings.Cut(makefile, "\ngoldens: ")
	require.True(t, ok)
	goldens, _, _ = strings.Cut(goldens, "\n\n")
	for _, folder := range takesUpdate(t) {
		assert.Contains(t, page, "`"+folder+"`", "its tests take -update")
		assert.Regexp(t, regexp.QuoteMeta(folder)+`\b`, goldens, "its tests take -update")
	}
	targets := regexp.MustCompile(`\bmake ([a-z][a-z-]*)`).FindAllStringSubmatch(page, -1)
	require.NotEmpty(t, targets)
	for _, m := range targets {
		assert.Regexp(t, `(?m)^`+m[1]+`:`, makefile, "CONTRIBUTING.md")
	}
	paths := regexp.MustCompile(
		"`(?:\\./)?((?:docs|internal|lowering|strategy|tpu|sharding|report|cmd|examples|testdata)(?:/[\\w./]*)?)`").FindAllStringSubmatch(page, -1)
	require.Greater(t, len(paths), 10)
	for _, m := range paths {
		_, err := os.Stat(filepath.Join("..", m[1]))
		assert.NoError(t, err, "CONTRIBUTING.md")
	}
	for _, m := range regexp.MustCompile(`-run (Test\w+) \./([\w/]+)`).FindAllStringSubmatch(page, -1) {
		files, err := filepath.Glob(filepath.Join("..", m[2], "*_test.go"))
		require.NoError(t, err)
		found := false
		for _, name := range files {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			found = found || strings.Contains(string(data), "func "+m[1]+"(")
		}
		assert.True(t, found, "CONTRIBUTING.md runs %s, which ./%s does not have", m[1], m[2])
	}
}
