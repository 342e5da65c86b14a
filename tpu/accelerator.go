package tpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// Accelerator is the kind and size of a slice: a generation, and the number of chips in x, y and z.
// It is a comparable value; the zero value is no slice.
type Accelerator struct {
	generation string
	shape      [3]int
}

// AcceleratorError reports a text that names no accelerator.
type AcceleratorError struct {
	// Text is what was to be read.
	Text string
	// Reason says what is wrong with it, and Hint what to write instead.
	Reason, Hint string
	// Nearest are the slices that exist next to the slice that was asked for: types such as v5p-384
	// for a type, topologies such as v5e:4x4 for a topology. It is empty where the generation or
	// the size cannot be read.
	Nearest []string
}

// maxQuoted bounds the text that an error repeats, in bytes.
const maxQuoted = 100

// Error returns "tpu: accelerator "text": reason; hint", in one line.
func (e *AcceleratorError) Error() string {
	text := e.Text
	if len(text) > maxQuoted {
		text = text[:maxQuoted] + "..."
	}
	return errkind.Text(fmt.Sprintf("tpu: accelerator %q", text), e.Reason, nil, e.Hint)
}

// Kind returns ValueError.
func (*AcceleratorError) Kind() errkind.Kind { return errkind.ValueError }

// ParseAccelerator reads an accelerator type, such as v5litepod-16, v4-8 or v5p-384, or a topology,
// such as v5p:4x4x4. A type takes the shape that Cloud TPU gives it by default. A type or a shape
// that does not exist gives an [*AcceleratorError], which names the nearest that do.
//
// The number of a type counts TensorCores for v2, v3, v4, v5p and tpu7x, and chips for v5e and v6e:
// v4-8 has four chips, v6e-8 has eight.
//
// A topology may be any shape in which chips are joined, also one that no type names, such as
// v4:4x4x20, and the part of one machine, such as v5e:1x2.
func ParseAccelerator(text string) (Accelerator, error) {
	at := strings.IndexAny(text, "-:")
	if at < 0 {
		return Accelerator{}, &AcceleratorError{Text: text, Reason: "no size", Hint: "write a type such as v5litepod-16 or a topology such as v5p:4x4x4"}
	}
	g, ok := LookupGeneration(text[:at])
	if !ok {
		return Accelerator{}, &AcceleratorError{Text: text, Reason: fmt.Sprintf("no generation %.40q", text[:at]), Hint: "known are " + strings.Join(prefixes(), ", ")}
	}
	if text[at] == ':' {
		return parseTopology(text, text[at+1:], g)
	}
	return parseType(text, text[at+1:], g)
}

// parseTopology reads the shape of a topology.
func parseTopology(text, shape string, g Generation) (Accelerator, error) {
	a := Accelerator{generation: g.Name}
	var ok bool
	if a.shape, ok = parseShape(shape, g.Dims); !ok {
		return Accelerator{}, &AcceleratorError{Text: text, Reason: fmt.Sprintf("%.40q is no shape", shape),
			Hint: fmt.Sprintf("write %d numbers from 1, such as %s", g.Dims, [...]string{2: "4x4", 3: "4x4x4"}[g.Dims])}
	}
	reason := ""
	switch {
	case a.Chips() > g.MaxChips:
		reason = fmt.Sprintf("%d chips are more than the %d of a pod", a.Chips(), g.MaxChips)
	case !g.joined(a.shape):
		reason = fmt.Sprintf("no %s slice has this shape; there are %s", g.Name, g.shapesText())
	default:
		return a, nil
	}
	e := &AcceleratorError{Text: text, Reason: reason}
	for _, near := range g.nearest(a.Chips()) {
		e.Nearest = append(e.Nearest, near.String())
	}
	e.Hint = nearestText(e.Nearest)
	return Accelerator{}, e
}

// parseType reads the size of an accelerator type.
func parseType(text, size string, g Generation) (Accelerator, error) {
	count, ok := parseSize(size)
	if !ok {
		return Accelerator{}, &AcceleratorError{Text: text, Reason: fmt.Sprintf("%.40q is no number of cores or chips", size)}
	}
	chips, odd := count, false
	if g.CountsCores {
		chips, odd = count/g.CoresPerChip, count%g.CoresPerChip != 0
	}
	reason := ""
	switch {
	case odd:
		reason = fmt.Sprintf("the number counts cores, of which a chip has %d", g.CoresPerChip)
	case chips > g.MaxChips:
		reason = fmt.Sprintf("%d chips are more than the %d of a pod", chips, g.MaxChips)
	case !slices.Contains(g.sizes(), chips):
		reason = fmt.Sprintf("%d chips have no default shape", chips)
	default:
		return Accelerator{generation: g.Name, shape: g.typeShape(chips)}, nil
	}
	e := &AcceleratorError{Text: text, Reason: reason}
	if odd {
		chips++ // between the two
	}
	var shapes []string
	for _, near := range g.nearest(chips) {
		e.Nearest = append(e.Nearest, near.Type())
		shapes = append(shapes, fmt.Sprintf("%s (%s)", near.Type(), near))
	}
	e.Hint = nearestText(shapes)
	return Accelerator{}, e
}

// nearestText names what exists.
func nearestText(names []string) string {
	if len(names) == 1 {
		return "the nearest is " + names[0]
	}
	return "the nearest are " + strings.Join(names, " and ")
}

func prefixes() []string {
	var names []string
	for _, g := range Generations() {
		names = append(names, g.TypePrefix)
		if g.Name != g.TypePrefix {
			names = append(names, g.Name)
		}
	}
	return names
}

// parseSize reads a decimal number from 1, without sign or leading zero.
func parseSize(text string) (int, bool) {
	if len(text) > 5 || text == "" || text[0] == '0' {
		return 0, false
	}
	n, err := strconv.ParseUint(text, 10, 32)
	return int(n), err == nil
}

// parseShape reads numbers between 'x'. In two dimensions, a third of 1 may follow, as the runtime
// writes it.
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

// Generation returns the facts of the generation.
func (a Accelerator) Generation() Generation {
	g, _ := LookupGeneration(a.generation)
	return g
}

// Shape returns the chips in x, y and z.
func (a Accelerator) Shape() [3]int { return a.shape }

// Chips returns the number of chips.
func (a Accelerator) Chips() int { return a.shape[0] * a.shape[1] * a.shape[2] }

// Cores returns the number of TensorCores.
func (a Accelerator) Cores() int { return a.Chips() * a.Generation().CoresPerChip }

// Devices returns the number of devices that the runtime makes of the slice.
func (a Accelerator) Devices() int { return a.Chips() * a.Generation().DevicesPerChip }

// Hosts returns the number of host machines.
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

// hostShape returns the block of chips of one host: all of them if one host may have that many,
// else 2x2x1.
func (a Accelerator) hostShape() [3]int {
	if a.Generation().onHost(a.shape) {
		return a.shape
	}
	return [3]int{2, 2, 1}
}

// HBMBytes returns the memory of all chips.
func (a Accelerator) HBMBytes() int64 { return int64(a.Chips()) * a.Generation().HBMBytes }

// PeakFLOPS returns the peak of all chips in bfloat16 operations per second.
func (a Accelerator) PeakFLOPS() float64 { return float64(a.Chips()) * a.Generation().PeakFLOPS }

// Type returns the accelerator type, such as v5litepod-16. Slices of different shapes have the same
// type.
func (a Accelerator) Type() string {
	g := a.Generation()
	count := a.Chips()
	if g.CountsCores {
		count = a.Cores()
	}
	return g.TypePrefix + "-" + strconv.Itoa(count)
}

// String returns the topology string by which libtpu knows the slice, such as v5e:4x4 or v5p:4x4x4.
// [ParseAccelerator] reads it back.
func (a Accelerator) String() string {
	return a.generation + ":" + shapeText(a.shape, max(a.Generation().Dims, 2))
}

// Topology returns the slice as it is laid out when nothing is missing: a task per host, hosts and
// the chips of each in order with x fastest, then y and z. The device ids are libtpu's: they count
// the chips of the whole slice in that order, not host by host. On a real slice the runtime's own
// topology counts; this one serves to plan for a slice that is not at hand.
func (a Accelerator) Topology() (Topology, error) {
	if a.Chips() == 0 {
		return Topology{}, topologyError("MeshShape", "make one with ParseAccelerator", "no accelerator")
	}
	block, devices := a.hostShape(), a.Generation().DevicesPerChip
	var hosts [3]int
	for i, n := range a.shape {
		hosts[i] = n / block[i]
	}
	var coords [][]Coordinates
	var ids [][]int
	eachXYZ(hosts, func(host [3]int) {
		var task []Coordinates
		var numbers []int
		eachXYZ(block, func(chip [3]int) {
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

// eachXYZ visits a block, x fastest.
func eachXYZ(block [3]int, visit func([3]int)) {
	for z := range block[2] {
		for y := range block[1] {
			for x := range block[0] {
				visit([3]int{x, y, z})
			}
		}
	}
}

// nearest are the slices that come next below and above a number of chips.
func (g Generation) nearest(chips int) []Accelerator {
	sizes := g.sizes()
	above, _ := slices.BinarySearch(sizes, chips)
	var out []Accelerator
	for _, i := range []int{above - 1, above} {
		if i >= 0 && i < len(sizes) {
			out = append(out, Accelerator{generation: g.Name, shape: g.typeShape(sizes[i])})
		}
	}
	return out
}
