package clusterresolver

import (
	"strconv"
	"strings"

	"tpustrategy/tpu"
)

// Bounds is a grid of chips or processes along x, y and z. The zero value means
// "not told".
type Bounds [3]int

// maxBound bounds one side: no slice is near it, and the product stays an int.
const maxBound = 1 << 16

// ParseBounds reads "2,2,1", the form of TPU_PROCESS_BOUNDS and its kin. source
// names the input in errors, which are [*ParseError].
func ParseBounds(source, text string) (Bounds, error) {
	var b Bounds
	i := 0
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 32)
		if i == 3 || err != nil || n == 0 || n > maxBound {
			return Bounds{}, parseError(source, text, "not three sides", `write three positive numbers, such as "2,2,1"`)
		}
		b[i] = int(n)
		i++
	}
	if i != 3 {
		return Bounds{}, parseError(source, text, "not three sides", `write three positive numbers, such as "2,2,1"`)
	}
	return b, nil
}

// Size is how many cells the grid has; 0 for the zero value.
func (b Bounds) Size() int { return b[0] * b[1] * b[2] }

// String is the form that [ParseBounds] reads; "" for the zero value.
func (b Bounds) String() string {
	if b == (Bounds{}) {
		return ""
	}
	return joinInts(b[:])
}

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

// parseTopology reads a chip topology such as "4x4" or "2x2x1" into its number of
// chips.
func parseTopology(source, text string) (chips int, err error) {
	bad := func() (int, error) {
		return 0, parseError(source, text, "not a topology", `write two or three sides, such as "4x4" or "2x2x1"`)
	}
	chips, sides := 1, 0
	for part := range strings.SplitSeq(text, "x") {
		n, err := strconv.ParseUint(part, 10, 32)
		if err != nil || n == 0 || n > maxBound || sides == 3 {
			return bad()
		}
		chips *= int(n)
		sides++
	}
	if sides < 2 {
		return bad()
	}
	return chips, nil
}

// accelerator is what the resolvers need of an accelerator type. Package tpu makes
// more of one, but only of sizes with a default shape; a slice that was asked for by
// its topology may have any size.
type accelerator struct {
	generation tpu.Generation
	chips      int
	// minHosts and maxHosts bracket the number of machines: a slice of 8 v5e or v6e
	// chips comes on one machine or on two.
	minHosts, maxHosts int
}

func parseAccelerator(source, text string) (accelerator, error) {
	name, size, ok := strings.Cut(text, "-")
	n, err := strconv.ParseUint(size, 10, 32)
	if !ok || err != nil || n == 0 || n > maxBound {
		return accelerator{}, parseError(source, text, "not an accelerator type",
			`write generation and size, such as "v4-32" or "v5litepod-16"`)
	}
	g, ok := tpu.LookupGeneration(name)
	if !ok {
		var known []string
		for _, g := range tpu.Generations() {
			known = append(known, g.TypePrefix)
		}
		return accelerator{}, parseError(source, text, "unknown TPU generation", "known: "+strings.Join(known, ", "))
	}
	a := accelerator{generation: g, chips: int(n)}
	if g.CountsCores {
		if a.chips%g.CoresPerChip != 0 {
			return accelerator{}, parseError(source, text, "odd number of cores",
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
