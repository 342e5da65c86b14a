package imports

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Size is what a reader of a package has before him. Tests do not count.
type Size struct {
	// Files and Lines are those of its sources.
	Files, Lines int
	// Arrows are the pairs of its files of which the first uses a name that the second declares. Up
	// are those that run against the order of files with the fewest such arrows that was found.
	Arrows, Up int
	// Names are its exported constants, variables, functions and types, and the exported methods of
	// all its types: a method that can be called is a name, also where its type's is private.
	Names int
	// Methods are the methods of each type that has any, exported or not.
	Methods map[string]int
}

// Measure returns the sizes of all packages under root, nested modules included, by folder.
func Measure(root string) (map[string]Size, error) {
	folders := map[string][]string{}
	err := eachFile(root, func(name string) error {
		if !strings.HasSuffix(name, "_test.go") {
			folders[filepath.Dir(name)] = append(folders[filepath.Dir(name)], name)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sizes := map[string]Size{}
	for folder, names := range folders {
		path, err := filepath.Rel(root, folder)
		if err != nil {
			return nil, err
		}
		if sizes[filepath.ToSlash(path)], err = measure(names); err != nil {
			return nil, err
		}
	}
	return sizes, nil
}

// measure returns the size of the package of some files.
func measure(names []string) (Size, error) {
	size := Size{Files: len(names), Methods: map[string]int{}}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return Size{}, err
		}
		size.Lines += strings.Count(string(text), "\n")
		file, err := parser.ParseFile(set, name, text, parser.SkipObjectResolution)
		if err != nil {
			return Size{}, err
		}
		files = append(files, file)
		size.count(file)
	}
	size.arrows(set, files)
	return size, nil
}

// count adds the names and the methods that a file declares.
func (s *Size) count(file *ast.File) {
	exported := func(names ...*ast.Ident) {
		for _, n := range names {
			if n.IsExported() {
				s.Names++
			}
		}
	}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			exported(d.Name)
			if d.Recv != nil {
				s.Methods[receiver(d.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					exported(spec.Name)
				case *ast.ValueSpec:
					exported(spec.Names...)
				}
			}
		}
	}
}

// receiver is the name of a receiver's type.
func receiver(e ast.Expr) string {
	for {
		switch t := e.(type) {
		case *ast.StarExpr:
			e = t.X
		case *ast.IndexExpr:
			e = t.X
		case *ast.IndexListExpr:
			e = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// outside stands for the packages that a package imports: what is theirs is no arrow between files.
type outside struct{}

func (outside) Import(string) (*types.Package, error) { return nil, errors.New("not read") }

// arrows finds who uses whose names, fields and methods among a package's files.
func (s *Size) arrows(set *token.FileSet, files []*ast.File) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: outside{}, Error: func(error) {}, FakeImportC: true}
	pkg, _ := config.Check("measured", set, files, info) // which leaves out what others declare
	at := func(p token.Pos) string { return set.Position(p).Filename }
	targets := map[string]map[string]bool{}
	for id, object := range info.Uses {
		if object.Pkg() != pkg || !object.Pos().IsValid() {
			continue
		}
		if from, to := at(id.Pos()), at(object.Pos()); from != to {
			if targets[from] == nil {
				targets[from] = map[string]bool{}
			}
			targets[from][to] = true
		}
	}
	for _, to := range targets {
		s.Arrows += len(to)
	}
	s.Up = up(targets)
}

// up returns how many arrows run against the order of the files, which it makes as Eades, Lin and
// Smyth do ("A fast and effective heuristic for the feedback arc set problem", 1993): files that
// nobody uses come first, files that use nobody last, and of the others first the one that uses the
// most more files than use it.
func up(targets map[string]map[string]bool) int {
	left, users := map[string]bool{}, map[string]map[string]bool{}
	for from, list := range targets {
		left[from] = true
		for to := range list {
			left[to] = true
			if users[to] == nil {
				users[to] = map[string]bool{}
			}
			users[to][from] = true
		}
	}
	degree := func(of map[string]bool) (n int) {
		for other := range of {
			if left[other] {
				n++
			}
		}
		return n
	}
	var top, bottom []string
	for len(left) > 0 {
		first, best, last := "", 0, ""
		for _, name := range slices.Sorted(maps.Keys(left)) {
			out, in := degree(targets[name]), degree(users[name])
			if out == 0 {
				last = name
				break
			}
			if in == 0 {
				out += len(left) // before all others
			}
			if first == "" || out-in > best {
				first, best = name, out-in
			}
		}
		if last != "" {
			bottom = append(bottom, last)
			delete(left, last)
		} else {
			top = append(top, first)
			delete(left, first)
		}
	}
	slices.Reverse(bottom)
	place := map[string]int{}
	for i, name := range append(top, bottom...) {
		place[name] = i
	}
	against := 0
	for from, list := range targets {
		for to := range list {
			if place[to] < place[from] {
				against++
			}
		}
	}
	return against
}
