package imports

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// Module is the path that imports of the module begin with.
const Module = "github.com/tpustrategy/tpustrategy/"

// Read returns the imports of every package under root, nested modules included, by its folder. It
// reads files for every platform.
func Read(root string) (map[string]Imports, error) {
	found := map[string]Imports{}
	err := eachFile(root, func(name string) error {
		if filepath.Ext(name) != ".go" {
			return nil
		}
		folder, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		if found[folder].Sources == nil {
			found[folder] = Imports{Sources: map[string]bool{}, Tests: map[string]bool{}}
		}
		into := found[folder].Sources
		if strings.HasSuffix(name, "_test.go") {
			into = found[folder].Tests
		}
		for _, spec := range file.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if inner, ok := strings.CutPrefix(path, Module); ok || path == C {
				if !ok {
					inner = C
				}
				into[inner] = true
			}
		}
		return nil
	})
	return found, err
}

// eachFile calls f with the name of each file under root, including nested modules and tests. It
// skips hidden folders and build outputs.
func eachFile(root string, f func(name string) error) error {
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != root && (strings.HasPrefix(d.Name(), ".") || name == filepath.Join(root, "build")):
			return filepath.SkipDir
		case !d.IsDir():
			return f(name)
		}
		return nil
	})
}
