package clusterresolver

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/tpu"
)

// Bounds is a grid of chips or processes: its sizes along x, y and z, and the number of devices of
// a chip, which only some types such as tpu7x give and which is 0 otherwise. The zero value stands
// for a grid that no source gives.
type Bounds [4]int

// maxBound bounds one side, and maxChips a grid: no slice is near either.
const (
	maxBound = 1 << 16
	maxChips = 1 << 20
)

// ParseBounds reads a grid such as "2,2,1" or "2,2,1,2", as TPU_PROCESS_BOUNDS and
// TPU_CHIPS_PER_PROCESS_BOUNDS have it. source names the input in errors, which are [*ParseError]s.
func ParseBounds(source, text string) (Bounds, error) {
	bad := func() error {
		return parseError(source, text, "not three sides", `write three positive numbers, such as "2,2,1", and for tpu7x a fourth if it has one`)
	}
	var b Bounds
	i := 0
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 32)
		if i == len(b) || err != nil || n == 0 || n > maxBound {
			return Bounds{}, bad()
		}
		b[i] = int(n)
		i++
	}
	if i < 3 || b[0]*b[1] > maxChips || b[0]*b[1]*b[2] > maxChips || b.Size() > maxChips {
		return Bounds{}, bad()
	}
	return b, nil
}

// Size returns the product of all sizes of the grid, including the fourth, and 0 for the zero
// value.
func (b Bounds) Size() int { return b.chips() * max(b[3], 1) }

// chips is the size along x, y and z.
func (b Bounds) chips() int { return b[0] * b[1] * b[2] }

// fits says whether the grid has so many cells, with or without its fourth number.
func (b Bounds) fits(n int) bool { return n == b.chips() || n == b.Size() }

// told are the numbers that were told.
func (b Bounds) told() []int {
	if b[3] == 0 {
		return b[:3]
	}
	return b[:]
}

// String returns the form that [ParseBounds] reads, and "" for the zero value.
func (b Bounds) String() string {
	if b == (Bounds{}) {
		return ""
	}
	return joinInts(b.told())
}

// MarshalJSON returns the three or four numbers as a JSON array.
func (b Bounds) MarshalJSON() ([]byte, error) { return json.Marshal(b.told()) }

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

// parseTopology reads a chip topology such as "4x4" or "2x2x1" into its number of chips.
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
		if chips *= int(n); chips > maxChips {
			return bad()
		}
		sides++
	}
	if sides < 2 {
		return bad()
	}
	return chips, nil
}

// accelerator is what the resolvers infer from an accelerator type, by a table that may be behind
// the world: what contradicts it is a warning. Package tpu makes more of a type, but only of sizes
// with a default shape; a slice that was asked for by its topology may have any size.
type accelerator struct {
	generation tpu.Generation
	chips      int
	// minHosts and maxHosts bracket the number of machines: a slice of 8 v5e or v6e chips comes on
	// one machine or on two.
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
