package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestThePagesWorkInASeparateModule runs the README's commands for a user's module in an empty
// module that imports all packages of the pages. It also runs the install command of the launch
// scripts.
func TestThePagesWorkInASeparateModule(t *testing.T) {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	module := t.TempDir()
	run := func(script string) string {
		t.Helper()
		cmd := exec.Command("bash", "-euc", script)
		cmd.Dir = module
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", script, out)
		return string(out)
	}

	_, blocks := fenced(t)
	imports := map[string]bool{}
	setup := ""
	importPath := regexp.MustCompile(`"(github\.com/tpustrategy/tpustrategy/[^"]*)"`)
	for _, b := range blocks {
		if b.page == "../README.md" && strings.Contains(b.text, "go mod edit") {
			setup = b.text
		}
		for _, m := range importPath.FindAllStringSubmatch(b.text, -1) {
			if b.language == "go" {
				imports[m[1]] = true
			}
		}
	}
	require.Contains(t, imports, "github.com/tpustrategy/tpustrategy/storage/blobstore/gcs")
	edit, _, found := strings.Cut(setup, "go build -mod=mod ./...\n")
	require.True(t, found, "README.md has no commands for a separate module")
	edit = strings.ReplaceAll(edit, "../tpustrategy", root) // the same folder, to reuse the build cache

	script, err := os.ReadFile("../examples/multihost/slice.sh")
	require.NoError(t, err)
	install := regexp.MustCompile(`LIBTPU=\$\((go run .*)\)`).FindStringSubmatch(string(script))
	require.NotNil(t, install)
	library := run("go mod init own 2>/dev/null\n" + edit + "\n" + strings.Replace(install[1], "install tpu",
		"install cpu", 1))
	assert.FileExists(t, strings.TrimSpace(library[strings.LastIndexByte(strings.TrimSpace(library), '\n')+1:]))

	program := "package main\n\nimport (\n"
	for path := range imports {
		program += "\t_ \"" + path + "\"\n"
	}
	require.NoError(t, os.WriteFile(filepath.Join(module, "main.go"), []byte(program+")\n\nfunc main() {}\n"), 0o644))
	listed := run("go list -mod=mod -deps ./...")
	for path := range imports {
		assert.Contains(t, listed, path+"\n")
	}
}
