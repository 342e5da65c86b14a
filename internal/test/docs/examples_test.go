package docs_test

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHeadlineCallsHaveExamples checks the package comments of several packages. Each function or
// method that the package comment mentions must have an example.
func TestHeadlineCallsHaveExamples(t *testing.T) {
	for _, dir := range []string{"fit", "strategy/train", "logical", "lowering/loop", "input", "strategy/checkpoint"} {
		paths, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		require.NoError(t, err)
		var sources, tests []*ast.File
		set := token.NewFileSet()
		for _, path := range paths {
			file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
			require.NoError(t, err)
			if strings.HasSuffix(path, "_test.go") {
				tests = append(tests, file)
			} else {
				sources = append(sources, file)
			}
		}
		shown := map[string]bool{}
		for _, e := range doc.Examples(tests...) {
			name, _, _ := strings.Cut(e.Name, "_a") // additional examples have a lowercase suffix
			shown[name] = true
			assert.True(t, e.Output != "" || e.EmptyOutput, "%s: Example%s is not run", dir, e.Name)
		}
		text, err := os.ReadFile(filepath.Join("..", dir, "doc.go"))
		require.NoError(t, err)
		for _, file := range sources {
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || !f.Name.IsExported() {
					continue
				}
				name := f.Name.Name
				if f.Recv != nil {
					of := strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*")
					name = of + "." + name
				}
				named := regexp.MustCompile(`\[` + regexp.QuoteMeta(name) + `\]|\b` + filepath.Base(dir) + `\.` +
					regexp.QuoteMeta(name) + `\(`)
				if named.Match(text) {
					assert.True(t, shown[strings.ReplaceAll(name, ".", "_")], "%s: %s has no example", dir, name)
				}
			}
		}
	}
}
