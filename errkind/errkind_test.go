package errkind_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// methods returns the methods of the exported types of a package with their result types, and the
// exported variables that are initialized with errors.New.
func methods(t *testing.T, dir string) (types map[string]map[string]string, plain []string) {
	t.Helper()
	types = map[string]map[string]string{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					v, ok := spec.(*ast.ValueSpec)
					if !ok || d.Tok != token.VAR {
						continue
					}
					for i, name := range v.Names {
						if name.IsExported() && i < len(v.Values) && callee(v.Values[i]) == "errors.New" {
							plain = append(plain, dir+"."+name.Name)
						}
					}
				}
			case *ast.FuncDecl:
				if d.Recv == nil || d.Type.Results == nil || len(d.Type.Results.List) != 1 {
					continue
				}
				of := d.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				name, ok := of.(*ast.Ident)
				if !ok || !name.IsExported() {
					continue
				}
				if types[name.Name] == nil {
					types[name.Name] = map[string]string{}
				}
				types[name.Name][d.Name.Name] = text(d.Type.Results.List[0].Type)
			}
		}
	}
	return types, plain
}

func callee(x ast.Expr) string {
	if call, ok := x.(*ast.CallExpr); ok {
		return text(call.Fun)
	}
	return ""
}

func text(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return text(x.X) + "." + x.Sel.Name
	}
	return ""
}

func TestAllErrorTypesHaveKind(t *testing.T) {
	found := 0
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == "testdata" || strings.HasPrefix(name, ".") && path != ".." {
			return fs.SkipDir
		}
		types, plain := methods(t, path)
		require.Empty(t, plain, "use errkind.New, so that the errors have a kind")
		for name, of := range types {
			if of["Error"] != "string" {
				continue
			}
			found++
			require.Contains(t, []string{"errkind.Kind", "Kind"}, of["Kind"], "%s.%s has no method Kind", path, name)
		}
		return nil
	}))
	require.Greater(t, found, 40)
}

type kindError struct {
	kind errkind.Kind
	err  error
}

func (e kindError) Error() string      { return "kindError" }
func (e kindError) Unwrap() error      { return e.err }
func (e kindError) Kind() errkind.Kind { return e.kind }

func TestOf(t *testing.T) {
	value := kindError{kind: errkind.ValueError}
	for name, c := range map[string]struct {
		err  error
		want errkind.Kind
	}{
		"nil":               {nil, errkind.Unknown},
		"from elsewhere":    {errors.New("x"), errkind.Unknown},
		"itself":            {value, errkind.ValueError},
		"wrapped":           {fmt.Errorf("a: %w", value), errkind.ValueError},
		"below one without": {kindError{err: value}, errkind.ValueError},
		"joined":            {errors.Join(errors.New("x"), fmt.Errorf("a: %w", value)), errkind.ValueError},
		"the outer one":     {kindError{errkind.TypeError, value}, errkind.TypeError},
		"a package's": {fmt.Errorf("a: %w", errkind.New(errkind.RuntimeError, "closed")),
			errkind.RuntimeError},
		"unsupported":             {fmt.Errorf("a: %w", errors.ErrUnsupported), errkind.NotImplementedError},
		"no file":                 {fmt.Errorf("a: %w", os.ErrNotExist), errkind.NotFoundError},
		"a deadline":              {context.DeadlineExceeded, errkind.DeadlineExceededError},
		"cancelled":               {context.Canceled, errkind.CancelledError},
		"a kind before a context": {fmt.Errorf("%w: %w", context.Canceled, value), errkind.ValueError},
	} {
		require.Equal(t, c.want, errkind.KindOf(c.err), name)
	}
	require.Equal(t, errkind.TypeError, errkind.KindOr(errors.New("x"), errkind.TypeError))
	require.Equal(t, "ResourceExhaustedError", errkind.ResourceExhaustedError.String())
	require.Equal(t, "unknown", errkind.Kind(99).String())
}
