package tpu

import (
	"fmt"
	"math/bits"
	"strings"
)

// Pods of three dimensions are built of cubes of 4x4x4 chips, whose faces are joined optically: a
// slice lies within a cube or is made of whole ones.
const (
	cubeSide  = 4
	cubeChips = cubeSide * cubeSide * cubeSide
)

// maxCubes is the largest number of cubes up to which every number is offered that gives no side of
// more than maxCubesAside cubes. Above it only the sizes of largeCubes are.
const (
	maxCubes      = 96
	maxCubesAside = 61
)

// largeCubes are the offered numbers of cubes above maxCubes.
var largeCubes = map[string][]int{"v5p": {108, 140}, "tpu7x": {108, 128, 140, 144}}

// sizes are the chips of the accelerator types of a generation, ascending.
//
// Sources: the public table of slices in AI-Hypercomputer/maxtext (accelerator_to_spec_map), to
// which a test holds them; the whole pod of v4; and for v2 and v3, which that table lacks, powers
// of two.
func (g Generation) sizes() []int {
	var chips []int
	switch g.Name {
	case "v2", "v3":
		chips = doublings(4, g.MaxChips)
	case "v5e", "v6e":
		chips = append([]int{1}, doublings(4, g.MaxChips)...)
	case "v4":
		chips = []int{4, 8, 16, 32, 64, 128, 192, 256, 512, 768, 1024, 2048, g.MaxChips}
	default:
		if g.Name == "tpu7x" {
			chips = []int{1}
		}
		chips = append(chips, doublings(4, cubeChips/2)...)
		for cubes := 1; cubes <= maxCubes; cubes++ {
			if compact(cubes)[2] <= maxCubesAside {
				chips = append(chips, cubes*cubeChips)
			}
		}
		for _, cubes := range largeCubes[g.Name] {
			chips = append(chips, cubes*cubeChips)
		}
	}
	return chips
}

func doublings(from, to int) (list []int) {
	for n := from; n <= to; n *= 2 {
		list = append(list, n)
	}
	return list
}

// typeShape is the shape that Cloud TPU gives an accelerator type of so many chips: powers of two
// are shared among the dimensions, the last getting the most, and cubes are piled up as compactly
// as they can be.
func (g Generation) typeShape(chips int) [3]int {
	k := bits.TrailingZeros(uint(chips))
	switch {
	case g.Dims == 2 || chips <= cubeSide:
		return [3]int{1 << (k / 2), 1 << ((k + 1) / 2), 1}
	case chips < cubeChips:
		return [3]int{1 << (k / 3), 1 << ((k + 1) / 3), 1 << ((k + 2) / 3)}
	}
	shape := compact(chips / cubeChips)
	for i := range shape {
		shape[i] *= cubeSide
	}
	return shape
}

// compact returns the three ascending factors of n whose block has the least surface.
func compact(n int) (best [3]int) {
	surface := 0
	for a := 1; a*a*a <= n; a++ {
		for b := a; n%a == 0 && a*b*b <= n; b++ {
			if c := n / a / b; a*b*c == n && (surface == 0 || a*b+b*c+c*a < surface) {
				best, surface = [3]int{a, b, c}, a*b+b*c+c*a
			}
		}
	}
	return best
}

// hostGrid is the block of chips of one machine at its largest.
func (g Generation) hostGrid() [2]int {
	if g.MaxChipsPerHost == 8 {
		return [2]int{2, 4}
	}
	return [2]int{2, 2}
}

// onHost says whether a slice of this shape can be on one machine.
func (g Generation) onHost(shape [3]int) bool {
	grid := g.hostGrid()
	small, large := min(shape[0], shape[1]), max(shape[0], shape[1])
	return shape[2] == 1 && powerOfTwo(small) && powerOfTwo(large) && small <= grid[0] && large <= grid[1]
}

func powerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }

// joined says whether chips are joined in this shape: on one machine, or by whole machines of 2x2
// chips; in two dimensions with sides that are powers of two and no longer than a pod's, in three
// within a cube or by whole cubes.
func (g Generation) joined(shape [3]int) bool {
	switch {
	case g.onHost(shape):
		return true
	case shape[0]%2 != 0 || shape[1]%2 != 0:
		return false
	case g.Dims == 2:
		side := max(shape[0], shape[1])
		return powerOfTwo(shape[0]) && powerOfTwo(shape[1]) && side*side <= g.MaxChips
	case max(shape[0], shape[1], shape[2]) <= cubeSide:
		return shape[2] != 3
	}
	return shape[0]%cubeSide == 0 && shape[1]%cubeSide == 0 && shape[2]%cubeSide == 0
}

// shapesText says which shapes there are.
func (g Generation) shapesText() string {
	var names []string
	for _, chips := range g.sizes() {
		if g.Dims == 3 && chips >= cubeChips {
			names = append(names, "blocks whose sides are multiples of 4")
			break
		}
		names = append(names, shapeText(g.typeShape(chips), g.Dims))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func shapeText(shape [3]int, dims int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(shape[:dims]), "[]"), " ", "x")
}
