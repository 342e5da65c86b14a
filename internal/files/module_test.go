package files

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// openers are functions that open any path, by package.
var openers = map[string][]string{
	"os":  {"Open", "OpenFile", "ReadFile", "WriteFile", "Create"},
	"elf": {"Open"},
}

// exceptions are the files and packages that call openers, and the reason why user-provided paths
// and links of other users are no problem there. All other code uses this package.
var exceptions = map[string]string{
	"internal/files":                 "it implements the checks",
	"tpu/system/lock.go":             "files of the kernel",
	"fit/progress/process.go":        "files of the kernel",
	"pjrt/identity.go":               "files of the kernel",
	"pjrt/worker/limit_linux.go":     "files of the kernel",
	"fit/trainer/memory.go":          "files of the kernel",
	"internal/hostfacts":             "files of the kernel",
	"fit/goodput.go":                 "a path from the launch script, which Kubernetes mounts",
	"examples/notebook/main.go":      "its own file, in code for users",
	"internal/accept/clock.go":       "files of the kernel",
	"storage/directory.go":           "a directory, to sync it",
	"storage/write.go":               "a new file with a random name, so it is not a link",
	"storage/write_linux.go":         "the same new file",
	"internal/safetensors/writer.go": "a new file with a random name, and its directory",
	"internal/ahead/file.go": "an output of the user, which may be a pipe, or a file in a directory where no " +
		"file can be created",
	"cmd/tpustrategy/install.go": "new files in a new directory of this process",
	"internal/test":              "for tests",
}

func TestOnlyThisPackageOpensFiles(t *testing.T) {
	root := filepath.Join("..", "..")
	used := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name := filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".") && path != root):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, ok := call.X.(*ast.Ident)
			if !ok || !slices.Contains(openers[of.Name], call.Sel.Name) {
				return true
			}
			for at := name; at != "."; at = filepath.ToSlash(filepath.Dir(at)) {
				if exceptions[at] != "" {
					used[at] = true
					return true
				}
			}
			assert.Fail(t, "a path is opened outside of internal/files",
				"%s calls %s.%s: use files.Open, Read, OpenOwn, CreateBeside or Replace", name, of.Name, call.Sel.Name)
			return true
		})
		return nil
	})
	require.NoError(t, err)
	for name := range exceptions {
		assert.True(t, used[name], "%s does not call an opener any more", name)
	}
}
