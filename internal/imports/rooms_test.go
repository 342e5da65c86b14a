package imports

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// C is the arrow of import "C".
const C = "C"

// Law is the table of law.txt: the order of the packages, and what each may import.
type Law struct {
	Layers []Layer // from the ground up
}

// Layer is a named part of the order.
type Layer struct {
	Name  string
	Rooms []Room // from the ground up
}

// Room is one package of the law. Paths are relative to the module's root.
type Room struct {
	Path string
	// ForTests says that the tests of every package may import this one.
	ForTests bool
	// May are the packages that the sources import, and C where they use it.
	May []string
	// TestsAlso are the packages that are not lower, and that the tests import nevertheless.
	TestsAlso []string
}

// Parse reads the table. A line without an indent names a layer; an indented line is a package, a
// colon, what it imports, and after a bar what only its tests import from above.
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

// Imports are what the files of a package import of the module, each path once.
type Imports struct {
	Sources, Tests map[string]bool
}

// Check returns what is wrong, one sentence each: a package that the law lacks, an import that it
// does not allow, and an arrow or a package of the law that is not there.
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
					fault("the tests of %s import %s, which is not lower: name it after a bar in law.txt if that must be", r.Path, path)
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

// line is the room's line if the law allowed what is there.
func (r Room) line(got Imports) string {
	line := r.Path + ": " + strings.Join(slices.Sorted(maps.Keys(got.Sources)), " ")
	if len(r.TestsAlso) > 0 {
		line += " | " + strings.Join(r.TestsAlso, " ")
	}
	return line
}
