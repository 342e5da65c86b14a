package screen

import (
	"regexp"
	"strings"
)

// Shardy's compilers make lists as long as a mesh is large before they compare it with the devices
// there are.

var (
	meshAxes = regexp.MustCompile(`"[^"]*"\s*=\s*(-?[0-9]+)`)
	meshes   = regexp.MustCompile(`mesh<(\[[^\]]*\])`)
	subAxis  = regexp.MustCompile(`^:\s*\(([0-9]+)\)([0-9]+)`)
)

// checkMesh looks at the axes of a mesh, ["a"=2, "b"=4].
func checkMesh(axes string) error {
	var sizes []int64
	for _, m := range meshAxes.FindAllStringSubmatch(axes, -1) {
		sizes = append(sizes, numbers(m[1])...)
	}
	if product(sizes) == 0 {
		return codeError("the mesh <%.200s>: its axes are not of sizes from 1, or have more than %d devices together, which ends the compiler's memory", axes, maxTiles)
	}
	return nil
}

// checkSubAxis looks at the text after an axis's name, which is :(2)4 for a part of it.
func checkSubAxis(rest string) error {
	m := subAxis.FindStringSubmatch(rest[:min(len(rest), 64)])
	if m != nil && product(append(numbers(m[1]), numbers(m[2])...)) == 0 {
		return codeError("a part %s of an axis: it is not of sizes from 1, or of more than %d devices, which ends the compiler's memory", m[0], maxTiles)
	}
	return nil
}

// checkMeshesInBytes looks at the attributes that bytecode keeps as text.
func checkMeshesInBytes(s string) error {
	for _, m := range meshes.FindAllStringSubmatch(s, -1) {
		if err := checkMesh(m[1]); err != nil {
			return err
		}
	}
	for {
		_, after, more := strings.Cut(s, `":(`)
		if !more {
			return nil
		}
		if err := checkSubAxis(":(" + after[:min(len(after), 64)]); err != nil {
			return err
		}
		s = after
	}
}
