package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folders maps the package names on TensorFlow's pages to folders.
var folders = map[string]string{
	"strategy": "strategy", "train": "strategy/train", "stepfile": "strategy/stepfile", "eager": "strategy/eager",
	"feed": "strategy/feed", "fit": "fit", "checkpoint": "strategy/checkpoint", "contrib": "compat/contrib",
	"v1": "compat/v1", "input": "input",
	"logical": "logical", "precision": "lowering/precision", "sharding": "sharding", "tpu": "tpu", "system": "tpu/system",
	"spmd":            "lowering/spmd",
	"clusterresolver": "cluster_resolver",
}

// comments returns the doc comments of a package by name: T for a type, T.f for its methods and
// fields, and the empty name for the package. The comment of a constant includes the comment of its
// block, and the comment of a field includes the comment of its type.
func comments(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	add := func(name string, groups ...*ast.CommentGroup) {
		for _, g := range groups {
			all[name] += " " + strings.Join(strings.Fields(g.Text()), " ")
		}
	}
	files, err := filepath.Glob(filepath.Join("..", folder, "*.go"))
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution|parser.ParseComments)
		require.NoError(t, err)
		add("", f.Doc)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = typeName(d.Recv.List[0].Type) + "." + name
				}
				add(name, d.Doc)
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						for _, n := range s.Names {
							add(n.Name, d.Doc, s.Doc, s.Comment)
						}
					case *ast.TypeSpec:
						add(s.Name.Name, d.Doc, s.Doc, s.Comment)
						if st, ok := s.Type.(*ast.StructType); ok {
							for _, field := range st.Fields.List {
								for _, n := range field.Names {
									add(s.Name.Name+"."+n.Name, d.Doc, s.Doc, field.Doc, field.Comment)
								}
							}
						}
					}
				}
			}
		}
	}
	return all
}

// word matches a TensorFlow name in a doc comment. A lowercase name, which may be an English word,
// must be qualified: Strategy.run or TensorFlow's run.
func word(name string) *regexp.Regexp {
	name = strings.TrimSuffix(name, " (r1.9)")
	last := name[strings.LastIndex(name, ".")+1:]
	before := `\b`
	if regexp.MustCompile(`^[a-z]+$`).MatchString(last) {
		before = `(TensorFlow's |\w\.)`
	}
	return regexp.MustCompile(before + regexp.QuoteMeta(last) + `\b`)
}

// TestTensorFlowsNamesAreFound checks that the doc comment of each implementation mentions the
// TensorFlow name, so that users can search the documentation for it.
func TestTensorFlowsNamesAreFound(t *testing.T) {
	require.Regexp(t, word("Strategy.run"), "as Strategy.run does")
	require.NotRegexp(t, word("Strategy.run"), "it can run")
	require.Regexp(t, word("StrategyExtended.value_container"), "TensorFlow's value_container")
	docs := map[string]map[string]string{}
	for name, folder := range folders {
		docs[name] = comments(t, folder)
	}
	require.Contains(t, docs["strategy"]["TPUStrategy"], "TPUStrategy")
	missing := map[string][]string{}
	for _, row := range rows(t) {
		ours := names(row[1])
		for _, theirs := range names(row[0]) {
			found := len(ours) == 0 || theirs == "DistributionStrategy.__init__"
			for _, full := range ours {
				in, symbol, _ := strings.Cut(full, ".")
				found = found || word(theirs).MatchString(docs[in][symbol])
			}
			if !found {
				missing[theirs] = ours
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		assert.True(t, slices.Contains(notFound, name), "no doc of %v says %s", missing[name], name)
	}
	for _, name := range notFound {
		assert.NotEmpty(t, missing[name], "a doc says %s: take it from the list", name)
	}
}

// notFound contains the names that no doc comment mentions yet.
var notFound = []string{}
