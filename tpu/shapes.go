package tpu

import (
	"fmt"
	"math/bits"
	"strings"
)

// Pods with three dimensions consist of cubes of 4x4x4 chips with optical connections between their
// faces. A slice is either within one cube or consists of complete cubes.
const (
	cubeSide  = 4
	cubeChips = cubeSide * cubeSide * cubeSide
)

// Cloud TPU offers slices with up to maxCubes cubes if no side has more than maxCubesPerSide cubes.
// Larger slices are offered only in the sizes of largeCubes.
const (
	maxCubes        = 96
	maxCubesPerSide = 61
)

// largeCubes lists the offered numbers of cubes above maxCubes, by generation.
var largeCubes = map[string][]int{"v5p": {108, 140}, "tpu7x": {108, 128, 140, 144}}

// typeSizes returns the numbers of chips of all accelerator types of the generation, in ascending order.
//
// The sizes are from the table accelerator_to_spec_map of AI-Hypercomputer/maxtext; a test compares
// them. The complete pod of v4, and the powers of two for v2 and v3, are not in the table.
func (g Generation) typeSizes() []int {
	var chips []int
	switch g.Name {
	case "v2", "v3":
		chips = powersOfTwo(4, g.MaxChips)
	case "v5e", "v6e":
		chips = append([]int{1}, powersOfTwo(4, g.MaxChips)...)
	case "v4":
		chips = []int{4, 8, 16, 32, 64, 128, 192, 256, 512, 768, 1024, 2048, g.MaxChips}
	default:
		if g.Name == "tpu7x" {
			chips = []int{1}
		}
		chips = append(chips, powersOfTwo(4, cubeChips/2)...)
		for cubes := 1; cubes <= maxCubes; cubes++ {
			if compactFactors(cubes)[2] <= maxCubesPerSide {
				chips = append(chips, cubes*cubeChips)
			}
		}
		for _, cubes := range largeCubes[g.Name] {
			chips = append(chips, cubes*cubeChips)
		}
	}
	return chips
}

func powersOfTwo(first, last int) (list []int) {
	for n := first; n <= last; n *= 2 {
		list = append(list, n)
	}
	return list
}

// defaultShape returns the shape that Cloud TPU assigns to an accelerator type with the given
// number of chips. The sides of a small slice are powers of two that are as equal as possible, in
// ascending order. A larger slice is the most compact arrangement of cubes.
func (g Generation) defaultShape(chips int) [3]int {
	k := bits.TrailingZeros(uint(chips))
	switch {
	case g.Dims == 2 || chips <= cubeSide:
		return [3]int{1 << (k / 2), 1 << ((k + 1) / 2), 1}
	case chips < cubeChips:
		return [3]int{1 << (k / 3), 1 << ((k + 1) / 3), 1 << ((k + 2) / 3)}
	}
	shape := compactFactors(chips / cubeChips)
	for i := range shape {
		shape[i] *= cubeSide
	}
	return shape
}

// compactFactors returns the sides of the block of n cubes that has the smallest surface, in
// ascending order.
func compactFactors(n int) (best [3]int) {
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

// maxHostShape returns the largest block of chips on one host.
func (g Generation) maxHostShape() [2]int {
	if g.MaxChipsPerHost == 8 {
		return [2]int{2, 4}
	}
	return [2]int{2, 2}
}

// fitsHost reports whether a slice with this shape fits on one host.
func (g Generation) fitsHost(shape [3]int) bool {
	grid := g.maxHostShape()
	small, large := min(shape[0], shape[1]), max(shape[0], shape[1])
	return shape[2] == 1 && isPowerOfTwo(small) && isPowerOfTwo(large) && small <= grid[0] && large <= grid[1]
}

func isPowerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }

// isValidShape reports whether Cloud TPU connects chips in this shape. A slice must fit on one host
// or consist of complete hosts with 2x2 chips. In two dimensions, its sides must also be powers of
// two that do not exceed the sides of a pod. In three dimensions, it must be within one cube or
// consist of complete cubes.
func (g Generation) isValidShape(shape [3]int) bool {
	switch {
	case g.fitsHost(shape):
		return true
	case shape[0]%2 != 0 || shape[1]%2 != 0:
		return false
	case g.Dims == 2:
		side := max(shape[0], shape[1])
		return isPowerOfTwo(shape[0]) && isPowerOfTwo(shape[1]) && side*side <= g.MaxChips
	case max(shape[0], shape[1], shape[2]) <= cubeSide:
		return shape[2] != 3
	}
	return shape[0]%cubeSide == 0 && shape[1]%cubeSide == 0 && shape[2]%cubeSide == 0
}

// describeShapes returns a text that lists the default shapes, for error messages.
func (g Generation) describeShapes() string {
	var names []string
	for _, chips := range g.typeSizes() {
		if g.Dims == 3 && chips >= cubeChips {
			names = append(names, "blocks whose sides are multiples of 4")
			break
		}
		names = append(names, formatShape(g.defaultShape(chips), g.Dims))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

func formatShape(shape [3]int, dims int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(shape[:dims]), "[]"), " ", "x")
}
