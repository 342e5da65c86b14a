package clusterresolver

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/tpu"
)

// Bounds is the size of a grid of chips or processes along x, y and z. The fourth number is the
// number of devices per chip, which is used for tpu7x, or 0 if it is not specified. The zero value
// is an unspecified grid.
type Bounds [4]int

// maxBound is the maximum of each size, and maxChips the maximum size of a grid. Both are larger
// than any slice.
const (
	maxBound = 1 << 16
	maxChips = 1 << 20
)

// ParseBounds parses a grid such as "2,2,1" or "2,2,1,2", the format of TPU_PROCESS_BOUNDS and
// TPU_CHIPS_PER_PROCESS_BOUNDS. source is the name of the input in errors. Errors are [*ParseError]
// values.
func ParseBounds(source, text string) (Bounds, error) {
	fail := func() error {
		return parseError(source, text, "not a grid of three or four sizes", `write positive numbers such as "2,2,1"`)
	}
	var b Bounds
	i := 0
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 32)
		if i == len(b) || err != nil || n == 0 || n > maxBound {
			return Bounds{}, fail()
		}
		b[i] = int(n)
		i++
	}
	if i < 3 || b[0]*b[1] > maxChips || b[0]*b[1]*b[2] > maxChips || b.Size() > maxChips {
		return Bounds{}, fail()
	}
	return b, nil
}

// Size returns the product of all sizes, including the fourth number if it is specified. For the
// zero value, it returns 0.
func (b Bounds) Size() int { return b.chipCount() * max(b[3], 1) }

// chipCount returns the product of the sizes along x, y and z.
func (b Bounds) chipCount() int { return b[0] * b[1] * b[2] }

// hasSize reports whether the grid contains n chips, or n devices if the fourth number is specified.
func (b Bounds) hasSize(n int) bool { return n == b.chipCount() || n == b.Size() }

// sizes returns the sizes along x, y and z and, if it is specified, the number of devices per chip.
func (b Bounds) sizes() []int {
	if b[3] == 0 {
		return b[:3]
	}
	return b[:]
}

// String returns the grid in the format of [ParseBounds], or "" for the zero value.
func (b Bounds) String() string {
	if b == (Bounds{}) {
		return ""
	}
	return joinInts(b.sizes())
}

// MarshalJSON returns a JSON array of three or four numbers.
func (b Bounds) MarshalJSON() ([]byte, error) { return json.Marshal(b.sizes()) }

func joinInts(list []int) string {
	var s []byte
	for i, n := range list {
		if i > 0 {
			s = append(s, ',')
		}
		s = strconv.AppendInt(s, int64(n), 10)
	}
	return string(s)
}

// parseTopology parses a chip topology such as "4x4" or "2x2x1" and returns its number of chips.
func parseTopology(source, text string) (chips int, err error) {
	fail := func() (int, error) {
		return 0, parseError(source, text, "not a topology", `write two or three sides, such as "4x4" or "2x2x1"`)
	}
	chips, sides := 1, 0
	for part := range strings.SplitSeq(text, "x") {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil || n == 0 || n > maxBound || sides == 3 {
			return fail()
		}
		if chips *= int(n); chips > maxChips {
			return fail()
		}
		sides++
	}
	if sides < 2 {
		return fail()
	}
	return chips, nil
}

// sliceInfo contains the properties that follow from an accelerator type. It exists because
// tpu.ParseAccelerator accepts only sizes with a default shape, but slices that were created from a
// topology can have other sizes.
type sliceInfo struct {
	generation tpu.Generation
	chips      int
	// minHosts and maxHosts are the range of the number of hosts. For example, a slice of 8 v5e or
	// v6e chips has one or two hosts.
	minHosts, maxHosts int
}

func parseAccelerator(source, text string) (sliceInfo, error) {
	name, size, ok := strings.Cut(text, "-")
	n, err := strconv.ParseUint(size, 10, 32)
	if !ok || err != nil || n == 0 || n > maxBound {
		return sliceInfo{}, parseError(source, text, "not an accelerator type",
			`write generation and size, such as "v4-32" or "v5litepod-16"`)
	}
	g, ok := tpu.LookupGeneration(name)
	if !ok {
		var known []string
		for _, g := range tpu.Generations() {
			known = append(known, g.TypePrefix)
		}
		return sliceInfo{}, parseError(source, text, "unknown TPU generation", "use one of "+strings.Join(known, ", "))
	}
	a := sliceInfo{generation: g, chips: int(n)}
	if g.TypeCountsCores {
		if a.chips%g.CoresPerChip != 0 {
			return sliceInfo{}, parseError(source, text, "odd number of cores",
				"a "+name+" chip has "+strconv.Itoa(g.CoresPerChip)+" cores")
		}
		a.chips /= g.CoresPerChip
	}
	a.maxHosts = (a.chips + g.ChipsPerHost - 1) / g.ChipsPerHost
	a.minHosts = a.maxHosts
	if a.chips <= g.MaxChipsPerHost {
		a.minHosts = 1
	}
	return a, nil
}
