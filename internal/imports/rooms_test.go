package imports

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// C represents import "C".
const C = "C"

// Law is the contents of law.txt: the order of the packages and their permitted imports.
type Law struct {
	Layers []Layer // from the ground up
}

// Layer is a named part of the order.
type Layer struct {
	Name  string
	Rooms []Room // from the ground up
}

// Room is a package in the law. Paths are relative to the root of the module.
type Room struct {
	Path string
	// ForTests means that the tests of all packages may import this package.
	ForTests bool
	// May are the permitted imports of the sources, including C.
	May []string
	// TestsAlso are the permitted imports of the tests that are not in a lower layer.
	TestsAlso []string
}

// Parse parses a law. A line without an indent is the name of a layer. An indented line is a
// package, a colon, its permitted imports and, after a bar, the additional imports of its tests.
func Parse(text string) (Law, error) {
	var law Law
	seen := map[string]bool{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(strings.TrimRight(line, "\n"), "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if line[0] != ' ' {
			law.Layers = append(law.Layers, Layer{Name: strings.TrimSpace(line)})
			continue
		}
		name, list, ok := strings.Cut(line, ":")
		if !ok || len(law.Layers) == 0 {
			return Law{}, fmt.Errorf("law.txt:%d: want a layer, then lines \"  package: imports\", not %q", number,
				line)
		}
		may, also, _ := strings.Cut(list, "|")
		r := Room{May: strings.Fields(may), TestsAlso: strings.Fields(also)}
		r.Path, r.ForTests = strings.CutSuffix(strings.TrimSpace(name), " (for tests)")
		if seen[r.Path] {
			return Law{}, fmt.Errorf("law.txt:%d: %s stands twice", number, r.Path)
		}
		seen[r.Path] = true
		last := &law.Layers[len(law.Layers)-1]
		last.Rooms = append(last.Rooms, r)
	}
	return law, nil
}

// Imports are the packages of the module that a package imports, without duplicates.
type Imports struct {
	Sources, Tests map[string]bool
}

// Check returns one sentence for each violation: a package that is not in the law, an import that
// the law does not permit, and a permitted import or package that does not exist.
func (l Law) Check(found map[string]Imports) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	place, kit := map[string]int{}, map[string]bool{}
	for _, layer := range l.Layers {
		for _, r := range layer.Rooms {
			place[r.Path], kit[r.Path] = len(place), r.ForTests
		}
	}
	for _, path := range slices.Sorted(maps.Keys(found)) {
		if _, ok := place[path]; !ok {
			fault("%s is not in law.txt: give it a line above all that it imports: %s", path,
				Room{Path: path}.line(found[path]))
		}
	}
	for _, layer := range l.Layers {
		for _, r := range layer.Rooms {
			got, ok := found[r.Path]
			if !ok {
				fault("%s is in law.txt and has no Go file", r.Path)
				continue
			}
			lower := func(path string) bool {
				at, ok := place[path]
				return ok && at < place[r.Path]
			}
			for _, path := range r.May {
				if path != C && !lower(path) {
					fault("law.txt lets %s import %s, which is not lower", r.Path, path)
				}
				if !got.Sources[path] && path != C {
					fault("law.txt lets %s import %s, and it does not", r.Path, path)
				}
			}
			beyond := slices.DeleteFunc(slices.Sorted(maps.Keys(got.Sources)), func(path string) bool {
				return slices.Contains(r.May, path)
			})
			if len(beyond) > 0 {
				fault("%s imports %s, which law.txt does not allow; with it the line is: %s", r.Path,
					strings.Join(beyond, " "), r.line(got))
			}
			for _, path := range slices.Sorted(maps.Keys(got.Tests)) {
				if !lower(path) && path != r.Path && !kit[path] && !slices.Contains(r.TestsAlso, path) {
					fault("the tests of %s import %s, which is not lower: name it after a bar in law.txt if that must be", r.Path,
						path)
				}
			}
			for _, path := range r.TestsAlso {
				if !got.Tests[path] || lower(path) || kit[path] {
					fault("law.txt need not let the tests of %s import %s", r.Path, path)
				}
			}
		}
	}
	return faults
}

// line returns the line of the room for a law that permits its imports.
func (r Room) line(got Imports) string {
	line := r.Path + ": " + strings.Join(slices.Sorted(maps.Keys(got.Sources)), " ")
	if len(r.TestsAlso) > 0 {
		line += " | " + strings.Join(r.TestsAlso, " ")
	}
	return line
}
