package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// pkg contains the declarations of a package.
type pkg struct {
	objects map[string]bool            // all package-level names, also in tests
	types   map[string]bool            // the objects that are types
	members map[string]map[string]bool // methods and fields by type
	embeds  map[string][]string        // embedded types by type, possibly qualified
	fields  map[string][]string        // the types of fields by field name, for all structs
	tests   map[string]bool
}

func newPkg() *pkg {
	return &pkg{map[string]bool{}, map[string]bool{}, map[string]map[string]bool{}, map[string][]string{},
		map[string][]string{}, map[string]bool{}}
}

func (p *pkg) add(f *ast.File, test bool) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				p.member(typeName(d.Recv.List[0].Type), d.Name.Name)
				continue
			}
			p.objects[d.Name.Name] = true
			if test {
				p.tests[d.Name.Name] = true
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						p.objects[n.Name] = true
					}
				case *ast.TypeSpec:
					p.declare(s)
				}
			}
		}
	}
}

func (p *pkg) declare(s *ast.TypeSpec) {
	name := s.Name.Name
	p.objects[name], p.types[name] = true, true
	fields := &ast.FieldList{List: []*ast.Field{{Type: s.Type}}} // as in type A B
	switch of := s.Type.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	}
	for _, f := range fields.List {
		for _, n := range f.Names {
			p.member(name, n.Name)
			p.fields[n.Name] = append(p.fields[n.Name], typeName(f.Type))
		}
		if len(f.Names) == 0 {
			p.embeds[name] = append(p.embeds[name], typeName(f.Type))
		}
	}
}

func (p *pkg) member(of, name string) {
	if p.members[of] == nil {
		p.members[of] = map[string]bool{}
	}
	p.members[of][name] = true
}

// typeName returns the name of the type in T, *T and T[P], and the qualified name of other.T.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.IndexExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// source is a Go file of the repository.
type source struct {
	name string
	file *ast.File
	of   *pkg
}

// index contains the declarations of this repository, of GoMLX, and of the packages that this
// module imports.
type index struct {
	byName map[string][]*pkg
	// later contains the files of external packages by package name until the package is requested.
	later map[string][][]string
	// words contains all exported names, including members and names in tests.
	words map[string]bool
	// foreign contains words that look like Go names but are not.
	foreign map[string]bool
	sources []source
}

// declared returns the index that all tests share.
var declared = sync.OnceValues(newIndex)

func indexed(t *testing.T) *index {
	t.Helper()
	x, err := declared()
	require.NoError(t, err)
	return x
}

func newIndex() (*index, error) {
	x := &index{byName: map[string][]*pkg{}, later: map[string][][]string{}, words: map[string]bool{},
		foreign: map[string]bool{}}
	for _, word := range foreign {
		x.foreign[word] = true
	}
	pages, err := filepath.Glob("*tensorflow*.md")
	if err != nil {
		return nil, err
	}
	for _, name := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, cell := range theirs.FindAllString(string(page), -1) {
			for _, m := range camel.FindAllStringSubmatch(strings.ReplaceAll(cell, ".", " "), -1) {
				x.foreign[m[1]] = true
			}
		}
	}
	if err := x.walk("..", func(name string, f *ast.File, p *pkg) {
		x.sources = append(x.sources,
			source{name, f, p})
	}); err != nil {
		return nil, err
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/gomlx/gomlx",
		"github.com/gomlx/compute").Output()
	if err != nil {
		return nil, err
	}
	for _, dir := range strings.Fields(string(out)) {
		if err := x.walk(dir, func(string, *ast.File, *pkg) {}); err != nil {
			return nil, err
		}
	}
	out, err = exec.Command("go", "list", "-deps", "-f",
		`{{.ImportPath}} {{.Name}} {{.Dir}} {{join .GoFiles " "}} {{join .CgoFiles " "}}`, "../...").Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		cells := strings.Fields(line)
		if strings.HasPrefix(cells[0], "github.com/tpustrategy/") || strings.HasPrefix(cells[0], "github.com/gomlx/") {
			continue
		}
		for i := range cells[3:] {
			cells[3+i] = filepath.Join(cells[2], cells[3+i])
		}
		x.later[cells[1]] = append(x.later[cells[1]], cells[3:])
	}
	return x, nil
}

// walk parses the Go files below a directory.
func (x *index) walk(dir string, each func(name string, f *ast.File, p *pkg)) error {
	folders, set := map[string]*pkg{}, token.NewFileSet()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		f, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		p := folders[filepath.Dir(name)]
		if p == nil {
			p = newPkg()
			folders[filepath.Dir(name)] = p
		}
		p.add(f, strings.HasSuffix(name, "_test.go"))
		if of := strings.TrimSuffix(f.Name.Name, "_test"); !slices.Contains(x.byName[of], p) {
			x.byName[of] = append(x.byName[of], p)
		}
		each(name, f, p)
		return nil
	})
	for _, p := range folders {
		x.learn(p)
	}
	return err
}

func (x *index) learn(p *pkg) {
	for name := range p.objects {
		x.words[name] = true
	}
	for _, members := range p.members {
		for name := range members {
			x.words[name] = true
		}
	}
}

// packages returns the packages with the given name, or nil.
func (x *index) packages(name string) []*pkg {
	for _, files := range x.later[name] {
		p := newPkg()
		for _, name := range files {
			if f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution); err == nil {
				p.add(f, false)
			}
		}
		x.learn(p)
		x.byName[name] = append(x.byName[name], p)
	}
	delete(x.later, name)
	return x.byName[name]
}

// has reports whether a package with that name declares package.Symbol or package.Type.Member. It
// does not check the members of functions and variables.
func (x *index) has(name string) bool {
	parts := strings.Split(name, ".")
	if len(parts) < 2 || len(parts) > 3 {
		return false
	}
	for _, part := range parts[1:] {
		if !ast.IsExported(part) {
			return false
		}
	}
	return slices.ContainsFunc(x.packages(parts[0]), func(p *pkg) bool {
		return p.objects[parts[1]] && (len(parts) == 2 || !p.types[parts[1]] || x.member(p, parts[1], parts[2], 5))
	})
}

// member reports whether a type of a package has a field or method, possibly through embedded
// types. deep limits the depth of the search.
func (x *index) member(p *pkg, of, name string, deep int) bool {
	if p.members[of][name] {
		return true
	}
	return deep > 0 && slices.ContainsFunc(p.embeds[of], func(e string) bool {
		return e[strings.LastIndex(e, ".")+1:] == name || x.through(p, e, name, deep-1)
	})
}

// through is like member for a type that is written as T or other.T.
func (x *index) through(p *pkg, written, name string, deep int) bool {
	other, of, ok := strings.Cut(written, ".")
	if !ok {
		return x.member(p, written, name, deep)
	}
	return slices.ContainsFunc(x.packages(other), func(q *pkg) bool { return x.member(q, of, name, deep) })
}

// hasMember reports whether a type or field with the name of has the member. known reports whether
// such a type exists.
func (x *index) hasMember(of, name string) (known, has bool) {
	for _, list := range x.byName {
		for _, p := range list {
			known = known || p.types[of]
			has = has || p.types[of] && x.member(p, of, name, 5) ||
				slices.ContainsFunc(p.fields[of], func(written string) bool { return x.through(p, written, name, 5) })
		}
	}
	return known, has
}
