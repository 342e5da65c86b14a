package tpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Accelerator is the type and shape of a TPU slice: a generation and the number of chips in x, y
// and z. It is a comparable value. The zero value is not a valid slice.
type Accelerator struct {
	generation string
	shape      [3]int
}

// AcceleratorError reports text that is not the name of a valid accelerator.
type AcceleratorError struct {
	// Text is the parsed text.
	Text string
	// Reason describes the problem, and Hint the correction.
	Reason, Hint string
	// Nearest lists the valid slices with the next smaller and the next larger number of chips.
	// They are types such as v5p-384 if a type was parsed, and topologies such as v5e:4x4 if a
	// topology was parsed. Nearest is empty if the generation or the size is malformed.
	Nearest []string
}

// maxQuoted is the maximum length in bytes of the text in an error message.
const maxQuoted = 100

// Error returns `tpu: accelerator "text": reason; hint` in one line.
func (e *AcceleratorError) Error() string {
	text := e.Text
	if len(text) > maxQuoted {
		text = text[:maxQuoted] + "..."
	}
	return errkind.Format(fmt.Sprintf("tpu: accelerator %q", text), e.Reason, nil, e.Hint)
}

// Kind returns ValueError.
func (*AcceleratorError) Kind() errkind.Kind { return errkind.ValueError }

// ParseAccelerator parses an accelerator type such as v5litepod-16, v4-8 or v5p-384, or a topology
// such as v5p:4x4x4. A type has the default shape of Cloud TPU. A type or shape that does not exist
// is an [*AcceleratorError] with the nearest valid slices.
//
// The number in a type counts TensorCores for v2, v3, v4, v5p and tpu7x, and chips for v5e and v6e.
// For example, v4-8 has four chips and v6e-8 has eight.
//
// A topology can have any shape in which Cloud TPU connects chips, including shapes without a type
// such as v4:4x4x20, and parts of one host such as v5e:1x2.
func ParseAccelerator(text string) (Accelerator, error) {
	separator := strings.IndexAny(text, "-:")
	if separator < 0 {
		return Accelerator{}, &AcceleratorError{Text: text, Reason: "the size is missing",
			Hint: "write a type such as v5litepod-16 or a topology such as v5p:4x4x4"}
	}
	g, ok := LookupGeneration(text[:separator])
	if !ok {
		return Accelerator{}, &AcceleratorError{Text: text, Reason: fmt.Sprintf("unknown generation %.40q", text[:separator]),
			Hint: "use one of " + strings.Join(typePrefixes(), ", ")}
	}
	if text[separator] == ':' {
		return parseTopology(text, text[separator+1:], g)
	}
	return parseType(text, text[separator+1:], g)
}

// parseTopology parses the shape in the name of a topology such as v5p:4x4x4, and returns the slice
// with this shape.
func parseTopology(text, shape string, g Generation) (Accelerator, error) {
	a := Accelerator{generation: g.Name}
	var ok bool
	if a.shape, ok = parseShape(shape, g.Dims); !ok {
		return Accelerator{}, &AcceleratorError{Text: text, Reason: fmt.Sprintf("invalid shape %.40q", shape),
			Hint: fmt.Sprintf("write %d positive numbers, such as %s", g.Dims, [...]string{2: "4x4", 3: "4x4x4"}[g.Dims])}
	}
	reason := ""
	switch {
	case a.Chips() > g.MaxChips:
		reason = fmt.Sprintf("%d chips are more than the %d chips of a pod", a.Chips(), g.MaxChips)
	case !g.isValidShape(a.shape):
		reason = fmt.Sprintf("no %s slice has this shape; there are %s", g.Name, g.describeShapes())
	default:
		return a, nil
	}
	e := &AcceleratorError{Text: text, Reason: reason}
	for _, near := range g.nearestSlices(a.Chips()) {
		e.Nearest = append(e.Nearest, near.String())
	}
	e.Hint = nearestHint(e.Nearest)
	return Accelerator{}, e
}

// parseType parses the number in an accelerator type such as v4-8, and returns the slice with this
// number of chips or cores.
func parseType(text, size string, g Generation) (Accelerator, error) {
	count, ok := parseSize(size)
	if !ok {
		return Accelerator{}, &AcceleratorError{Text: text, Reason: fmt.Sprintf("invalid number of cores or chips %.40q",
			size)}
	}
	chips, indivisible := count, false
	if g.TypeCountsCores {
		chips, indivisible = count/g.CoresPerChip, count%g.CoresPerChip != 0
	}
	reason := ""
	switch {
	case indivisible:
		reason = fmt.Sprintf("the number counts cores and must be divisible by %d, the cores per chip", g.CoresPerChip)
	case chips > g.MaxChips:
		reason = fmt.Sprintf("%d chips are more than the %d chips of a pod", chips, g.MaxChips)
	case !slices.Contains(g.typeSizes(), chips):
		reason = fmt.Sprintf("%d chips have no default shape", chips)
	default:
		return Accelerator{generation: g.Name, shape: g.defaultShape(chips)}, nil
	}
	e := &AcceleratorError{Text: text, Reason: reason}
	if indivisible {
		chips++ // the nearest types are chips and chips+1
	}
	var shapes []string
	for _, near := range g.nearestSlices(chips) {
		e.Nearest = append(e.Nearest, near.Type())
		shapes = append(shapes, fmt.Sprintf("%s (%s)", near.Type(), near))
	}
	e.Hint = nearestHint(shapes)
	return Accelerator{}, e
}

// nearestHint returns a hint that lists the valid slices whose number of chips is nearest.
func nearestHint(names []string) string {
	if len(names) == 1 {
		return "the nearest is " + names[0]
	}
	return "the nearest are " + strings.Join(names, " and ")
}

func typePrefixes() []string {
	var names []string
	for _, g := range Generations() {
		names = append(names, g.TypePrefix)
		if g.Name != g.TypePrefix {
			names = append(names, g.Name)
		}
	}
	return names
}

// parseSize parses a positive decimal number without sign and leading zeros.
func parseSize(text string) (int, bool) {
	if len(text) > 5 || text == "" || text[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return int(n), err == nil
}

// parseShape parses a shape with the given number of dimensions, such as 4x4. For two dimensions,
// it also accepts a third number of 1, because the runtime writes such shapes.
func parseShape(text string, dims int) (shape [3]int, ok bool) {
	parts := strings.Split(text, "x")
	if len(parts) != dims && !(dims == 2 && len(parts) == 3 && parts[2] == "1") {
		return shape, false
	}
	shape = [3]int{1, 1, 1}
	for i, part := range parts {
		if shape[i], ok = parseSize(part); !ok {
			return shape, false
		}
	}
	return shape, true
}

// Generation returns the properties of the generation.
func (a Accelerator) Generation() Generation {
	g, _ := LookupGeneration(a.generation)
	return g
}

// Shape returns the number of chips in x, y and z.
func (a Accelerator) Shape() [3]int { return a.shape }

// Chips returns the number of chips.
func (a Accelerator) Chips() int { return a.shape[0] * a.shape[1] * a.shape[2] }

// Cores returns the number of TensorCores.
func (a Accelerator) Cores() int { return a.Chips() * a.Generation().CoresPerChip }

// Devices returns the number of devices that the TPU runtime creates for the slice.
func (a Accelerator) Devices() int { return a.Chips() * a.Generation().DevicesPerChip }

// Hosts returns the number of hosts.
func (a Accelerator) Hosts() int {
	if a.generation == "" {
		return 0
	}
	hosts := 1
	for i, n := range a.hostShape() {
		hosts *= a.shape[i] / n
	}
	return hosts
}

// hostShape returns the block of chips of each host: the complete slice if it fits on one host, and
// 2x2x1 otherwise.
func (a Accelerator) hostShape() [3]int {
	if a.Generation().fitsHost(a.shape) {
		return a.shape
	}
	return [3]int{2, 2, 1}
}

// HBMBytes returns the total high-bandwidth memory of all chips in bytes.
func (a Accelerator) HBMBytes() int64 { return int64(a.Chips()) * a.Generation().HBMBytes }

// PeakFLOPS returns the total peak performance of all chips in bfloat16 operations per second.
func (a Accelerator) PeakFLOPS() float64 { return float64(a.Chips()) * a.Generation().PeakFLOPS }

// Type returns the accelerator type, such as v5litepod-16. Slices with the same number of chips
// have the same type, even if their shapes differ.
func (a Accelerator) Type() string {
	g := a.Generation()
	count := a.Chips()
	if g.TypeCountsCores {
		count = a.Cores()
	}
	return g.TypePrefix + "-" + strconv.Itoa(count)
}

// String returns libtpu's topology name of the slice, such as v5e:4x4 or v5p:4x4x4. The name can be
// parsed by [ParseAccelerator].
func (a Accelerator) String() string {
	return a.generation + ":" + formatShape(a.shape, max(a.Generation().Dims, 2))
}

// Topology returns the topology of a complete slice, for planning without the hardware. It has one
// task for each host. Hosts, and the chips of each host, are ordered with x fastest, then y and z.
// Device ids number the chips of the complete slice in this order, independent of the hosts, as in
// libtpu. On a real slice, use the topology that the runtime reports.
func (a Accelerator) Topology() (Topology, error) {
	if a.Chips() == 0 {
		return Topology{}, topologyError("MeshShape", "create it with ParseAccelerator", "the accelerator is the zero value")
	}
	block, devices := a.hostShape(), a.Generation().DevicesPerChip
	var hosts [3]int
	for i, n := range a.shape {
		hosts[i] = n / block[i]
	}
	var coords [][]Coordinates
	var ids [][]int
	forEachXYZ(hosts, func(host [3]int) {
		var task []Coordinates
		var numbers []int
		forEachXYZ(block, func(chip [3]int) {
			x, y, z := host[0]*block[0]+chip[0], host[1]*block[1]+chip[1], host[2]*block[2]+chip[2]
			for core := range devices {
				task = append(task, Coordinates{x, y, z, core})
				numbers = append(numbers, ((z*a.shape[1]+y)*a.shape[0]+x)*devices+core)
			}
		})
		coords, ids = append(coords, task), append(ids, numbers)
	})
	return NewTopology(TopologyOptions{
		MeshShape:         []int{a.shape[0], a.shape[1], a.shape[2], devices},
		DeviceCoordinates: coords,
		DeviceIDs:         ids,
		Name:              a.String(),
	})
}

// forEachXYZ calls visit for all coordinates in a block of the given size, with x fastest.
func forEachXYZ(block [3]int, visit func([3]int)) {
	for z := range block[2] {
		for y := range block[1] {
			for x := range block[0] {
				visit([3]int{x, y, z})
			}
		}
	}
}

// nearestSlices returns the slices with the next smaller and the next larger number of chips.
func (g Generation) nearestSlices(chips int) []Accelerator {
	sizes := g.typeSizes()
	above, _ := slices.BinarySearch(sizes, chips)
	var out []Accelerator
	for _, i := range []int{above - 1, above} {
		if i >= 0 && i < len(sizes) {
			out = append(out, Accelerator{generation: g.Name, shape: g.defaultShape(sizes[i])})
		}
	}
	return out
}
