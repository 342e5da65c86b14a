//go:build cgo

package docs_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sources maps pages to source files. Go blocks of these pages are excerpts of the files and may
// omit lines.
var sources = map[string][]string{
	"../README.md":                   {"../examples/quickstart/main.go"},
	"tutorial.md":                    {"../examples/mnist/main.go"},
	"../examples/notebook/README.md": {"../examples/notebook/main.go"},
	"train-a-language-model.md":      {"../examples/gpt/main.go", "../lm/decoder/model.go"},
	"errors.md":                      {"../internal/test/docs/errors_cases_test.go"},
	"from-tensorflow.md": {"../internal/test/docs/from_tensorflow_cases_test.go",
		"../strategy/example_pages_test.go"},
	"tensorflow-recipes.md": {"../internal/test/docs/from_tensorflow_cases_test.go"},
}

// given declares the names that Go blocks of pages use without declaring them.
const given = `
	ctx context.Context, sys *system.System, strat *strategy.TPUStrategy, rc *strategy.ReplicaContext,
	store *model.Store, step *train.Step, opt optimizer.Interface, loss train.Loss, data fit.Data,
	options fit.Options, rules logical.Rules, x, y, q, up, down *graph.Node, width int, err error,
	md *clusterresolver.MetadataClient, attention func(*model.Scope, *graph.Node) *graph.Node,
	newStep func(*strategy.TPUStrategy) *train.Step, tokenLosses func(*strategy.ReplicaContext, *graph.Node) *graph.Node, file, evalFile io.Reader, evalLoss *strategy.Variable,
	mesh *distributed.DeviceMesh, network func(*strategy.ReplicaContext, *graph.Node) *graph.Node, trainer *gomlxtrain.Trainer`

// TestThePagesCodeCompiles compiles the Go blocks of pages that are not excerpts of files. Each
// block is compiled as a function body that imports the packages of its qualified names.
func TestThePagesCodeCompiles(t *testing.T) {
	_, blocks := fenced(t)
	paths := map[string]string{"clusterresolver": "github.com/tpustrategy/tpustrategy/cluster_resolver",
		"gomlxtrain": "github.com/gomlx/gomlx/ml/train"}
	exports := map[string]string{}
	list, err := exec.Command("go", "list", "-deps", "-export", "-f", "{{.Name}} {{.ImportPath}} {{.Export}}",
		"../...").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(list)) {
		of := strings.Fields(line)
		if len(of) < 3 {
			continue // no export data
		}
		exports[of[1]] = of[2]
		if paths[of[0]] == "" || rank(of[1]) < rank(paths[of[0]]) {
			paths[of[0]] = of[1]
		}
	}
	files := token.NewFileSet()
	imported := importer.ForCompiler(files, "gc", func(path string) (io.ReadCloser, error) {
		if exports[path] == "" {
			return nil, fmt.Errorf("no package %s", path)
		}
		return os.Open(exports[path])
	})
	qualifier := regexp.MustCompile(`\b([a-z]\w*)\.[A-Z]`)
	compiled := 0
	for _, b := range blocks {
		if b.language != "go" {
			continue
		}
		at := fmt.Sprintf("%s:%d", b.page, b.line)
		if from := sources[b.page]; from != nil {
			shown := false
			for _, name := range from {
				file, err := os.ReadFile(name)
				require.NoError(t, err)
				shown = shown || piece(b.text, string(file))
			}
			if shown {
				continue
			}
			require.NotContains(t, b.text, "func ", "%s: it is in none of %v", at, from)
		}
		compiled++
		var program bytes.Buffer
		program.WriteString("package page\n")
		imports := regexp.MustCompile(`(?m)^import .*"github.com/tpustrategy/tpustrategy/(.*)".*\n|^import .*\n`)
		for _, m := range imports.FindAllStringSubmatch(b.text, -1) {
			if m[1] != "" && exports["github.com/tpustrategy/tpustrategy/"+m[1]] == "" { // another module of the repository
				assert.DirExists(t, "../"+m[1], at)
				continue
			}
			program.WriteString(m[0])
		}
		body := imports.ReplaceAllString(b.text, "")
		for _, m := range qualifier.FindAllStringSubmatch(given+body, -1) {
			if path := paths[m[1]]; path != "" && !strings.Contains(program.String(), "import "+m[1]+" \"") {
				fmt.Fprintf(&program, "import %s %q\n", m[1], path)
			}
		}
		fmt.Fprintf(&program, "func _(%s) {\n{\n%s\n}\n}\n", strings.TrimSpace(given), body)
		file, err := parser.ParseFile(files, at, program.Bytes(), parser.SkipObjectResolution)
		require.NoError(t, err, "%s\n%s", at, program.String())
		_, _ = (&types.Config{Importer: imported, Error: func(err error) {
			var wrong types.Error
			if errors.As(err, &wrong) && !wrong.Soft && !strings.Contains(wrong.Msg, "is not used") {
				t.Errorf("%s: %s\n%s", at, wrong.Msg, body)
			}
		}}).Check("page", files, []*ast.File{file}, nil)
	}
	assert.Greater(t, compiled, 15)
}

// rank orders packages of the same name. Packages of this module have the lowest rank, then
// packages of GoMLX, then packages of the standard library.
func rank(path string) int {
	for i, prefix := range []string{"github.com/tpustrategy/tpustrategy/", "github.com/gomlx/"} {
		if strings.HasPrefix(path, prefix) && !strings.Contains(path, "/internal/") {
			return 100*i + strings.Count(path, "/")
		}
	}
	if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") || strings.Contains(path, "internal/") {
		return 300
	}
	return 200 + strings.Count(path, "/")
}

// piece reports whether a file contains the lines of a text in the same order.
func piece(text, file string) bool {
	rest := strings.Split(file, "\n")
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		found := false
		for !found && len(rest) > 0 {
			found, rest = strings.TrimSpace(rest[0]) == line, rest[1:]
		}
		if !found {
			return false
		}
	}
	return true
}

// TestTheTutorialCountsTheLinesOfItsClassifier compares the line counts in the page with the files,
// without comments and empty lines.
func TestTheTutorialCountsTheLinesOfItsClassifier(t *testing.T) {
	program, err := os.ReadFile("../examples/mnist/main.go")
	require.NoError(t, err)
	code := regexp.MustCompile(`(?m)^\s*(//.*)?\n`).ReplaceAllString(string(program), "")
	keras, err := os.ReadFile("compare/mnist_keras.py")
	require.NoError(t, err)
	lines := strings.Count(regexp.MustCompile(`(?m)^\s*((#|""").*)?\n`).ReplaceAllString(string(keras), ""), "\n")
	page, err := os.ReadFile("tutorial.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), fmt.Sprintf("is %d lines of code", strings.Count(code, "\n")))
	assert.Contains(t, string(page), fmt.Sprintf("compare/mnist_keras.py) is %d lines", lines))
}
