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

// openers are the calls that read or write what a path names, whatever it is, by their packages.
var openers = map[string][]string{
	"os":  {"Open", "OpenFile", "ReadFile", "WriteFile", "Create"},
	"elf": {"Open"},
}

// apart are the files that call them, and why a user's path, or another user's link, does no harm
// there. Everything else goes through this package.
var apart = map[string]string{
	"internal/files":                 "it is the one opener",
	"tpu/system/lock.go":             "files of the kernel",
	"report/progress/process.go":     "files of the kernel",
	"pjrt/cache/identity.go":         "files of the kernel",
	"pjrt/worker/limit_linux.go":     "files of the kernel",
	"strategy/trainer/memory.go":     "files of the kernel",
	"internal/hostfacts":             "files of the kernel",
	"strategy/fit/goodput.go":        "what the launch script names, which Kubernetes mounts",
	"examples/notebook/main.go":      "a file of its own, as a user writes it",
	"internal/accept/clock.go":       "files of the kernel",
	"storage/directory.go":           "a folder, to bring its names to the disk",
	"storage/write.go":               "a new file under a random name, which no link has",
	"storage/write_linux.go":         "that new file once more",
	"internal/safetensors/writer.go": "a new file under a random name, and its folder",
	"internal/ahead/file.go":         "what the user names to write to, such as a pipe, or in a folder that takes no other files",
	"cmd/tpustrategy/install.go":     "new files in a new folder of this process",
	"internal/test":                  "for tests",
}

func TestWhatAPathNamesIsOpenedInOnePlace(t *testing.T) {
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
				if apart[at] != "" {
					used[at] = true
					return true
				}
			}
			assert.Fail(t, "a path is opened outside of internal/files", "%s calls %s.%s: use files.Open, Read, OpenOwn, CreateBeside or Replace", name, of.Name, call.Sel.Name)
			return true
		})
		return nil
	})
	require.NoError(t, err)
	for name := range apart {
		assert.True(t, used[name], "%s opens nothing by itself any more", name)
	}
}
