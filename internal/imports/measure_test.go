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
	"regexp"
	"slices"
	"strings"
)

// Size contains the measurements of one package, or of the documentation pages. Only Comments and
// Marked include test files.
type Size struct {
	// Files and Lines count the source files and their lines.
	Files, Lines int
	// Arrows counts the pairs of files in which the first file uses a name that the second
	// declares. Up counts the arrows that point against the best known order of the files.
	Arrows, Up int
	// Names counts the exported constants, variables, functions and types, and the exported methods of all
	// types. A type is allowed to be unexported, because its exported methods can still be called.
	Names int
	// Methods counts the methods of each type, exported or not.
	Methods map[string]int
	// Comments counts the comment lines, or the lines of prose on pages. Marked counts the lines
	// among them that contain a marker word.
	Comments, Marked int
}

// markers matches words that are frequent in unidiomatic English and rare in technical English.
// Line counts of these words are an early warning that the text becomes hard to read.
var markers = regexp.MustCompile(
	`(?i)\b(says?|is told|gives?|nobody|stands?|lies?|goes on|comes?|those of|of which|by which|the error of|` +
		`what (it|is|a|the)|so many|hands? on|takes the place|anew|alike|asks?|is made|of its own|held (to|against))\b`)

// countText adds a line of a comment or of a page to the counts.
func (s *Size) countText(line string) {
	s.Comments++
	if markers.MatchString(line) {
		s.Marked++
	}
}

// countPage adds the prose of a Markdown page: its lines without code blocks, tables and empty lines.
func (s *Size) countPage(text string) {
	code := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			code = !code
		} else if !code && line != "" && !strings.HasPrefix(line, "|") {
			s.countText(line)
		}
	}
}

// markersPerThousand returns the number of marked lines among 1,000 lines of text, rounded up.
func (s Size) markersPerThousand() int {
	n := max(1, s.Comments)
	return (1000*s.Marked + n - 1) / n
}

// Measure returns the sizes of all packages under root by folder, including nested modules, and the
// size of the pages as [Pages].
func Measure(root string) (map[string]Size, error) {
	folders := map[string][]string{}
	var pages Size
	err := eachFile(root, func(name string) error {
		switch filepath.Ext(name) {
		case ".go":
			folders[filepath.Dir(name)] = append(folders[filepath.Dir(name)], name)
		case ".md":
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			pages.countPage(string(text))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sizes := map[string]Size{Pages: pages}
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

// measure returns the size of the package with the given files.
func measure(names []string) (Size, error) {
	size := Size{Methods: map[string]int{}}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return Size{}, err
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "//") && !strings.HasPrefix(line, "//go:") {
				size.countText(line)
			}
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		size.Files++
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

// receiver returns the name of the type of a receiver.
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

// outside represents imported packages, whose names cause no arrows between files.
type outside struct{}

func (outside) Import(string) (*types.Package, error) { return nil, errors.New("not read") }

// arrows returns the pairs of files of a package in which the first uses a name, a field or a method of the
// second.
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

// up returns the number of arrows that point against the order of the files. The order is computed
// with the heuristic of Eades, Lin and Smyth ("A fast and effective heuristic for the feedback arc
// set problem", 1993): files without users come first, files without uses last, and of the others
// first the file with the largest difference between uses and users.
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
