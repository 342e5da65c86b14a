package tpu

import (
	"slices"
	"strings"
)

// Generation holds the facts of a TPU version.
type Generation struct {
	// Name is the name in topology strings, such as "v5e" in "v5e:4x4".
	Name string
	// TypePrefix is the name in accelerator types, such as "v5litepod" in "v5litepod-16".
	TypePrefix string
	// CountsCores says that the number in an accelerator type counts TensorCores; otherwise it
	// counts chips.
	CountsCores bool
	// CoresPerChip is the number of TensorCores of a chip.
	CoresPerChip int
	// DevicesPerChip is the number of devices that the runtime makes of a chip. It is less than
	// CoresPerChip where the runtime joins the cores into one device, as those of v4 (megacore) and
	// of v5p.
	DevicesPerChip int
	// Dims is the number of dimensions of the interconnect, 2 or 3.
	Dims int
	// ChipsPerHost is the number of chips of each machine of a slice of several machines, and
	// MaxChipsPerHost the most chips of a slice of one machine.
	ChipsPerHost, MaxChipsPerHost int
	// MaxChips is the number of chips of a full pod.
	MaxChips int
	// HBMBytes is the memory of a chip. The runtime keeps some of it to itself.
	HBMBytes int64
	// HBMBandwidth is the rate of a chip's memory in bytes per second.
	HBMBandwidth float64
	// PeakFLOPS is the peak of a chip in bfloat16 operations per second.
	PeakFLOPS float64
}

const gibibyte = 1 << 30

// Generations returns the known generations, oldest first.
//
// Sources: the Cloud TPU documentation ("TPU v2", "TPU v3", "TPU v4", "TPU v5e", "TPU v5p", "TPU
// v6e", "TPU7x (Ironwood)" at docs.cloud.google.com/tpu) for chips, cores, memory and peaks, and
// the public table of slices in AI-Hypercomputer/maxtext (accelerator_to_spec_map) for
// DevicesPerChip. testdata/generations.tsv and testdata/slices.tsv hold them as figures.
func Generations() []Generation {
	return []Generation{
		{"v2", "v2", true, 2, 2, 2, 4, 4, 256, 16 * gibibyte, 700e9, 46e12},
		{"v3", "v3", true, 2, 2, 2, 4, 4, 1024, 32 * gibibyte, 900e9, 123e12},
		{"v4", "v4", true, 2, 1, 3, 4, 4, 4096, 32 * gibibyte, 1228e9, 275e12},
		{"v5e", "v5litepod", false, 1, 1, 2, 4, 8, 256, 16 * gibibyte, 819e9, 197e12},
		{"v5p", "v5p", true, 2, 1, 3, 4, 4, 8960, 95 * gibibyte, 2765e9, 459e12},
		{"v6e", "v6e", false, 1, 1, 2, 4, 8, 256, 32 * gibibyte, 1640e9, 918e12},
		{"tpu7x", "tpu7x", true, 2, 2, 3, 4, 4, 9216, 192 * gibibyte, 7380e9, 2307e12},
	}
}

// LookupGeneration returns the generation with the given name or prefix of its accelerator types;
// "v5lite" and "v7x" are known too.
func LookupGeneration(name string) (Generation, bool) {
	switch name {
	case "v5lite":
		name = "v5e"
	case "v7x":
		name = "tpu7x"
	}
	all := Generations()
	i := slices.IndexFunc(all, func(g Generation) bool { return g.Name == name || g.TypePrefix == name })
	if i < 0 {
		return Generation{}, false
	}
	return all[i], true
}

// GenerationOfKind returns the generation of devices of which a plugin says such a kind, such as
// "TPU v5 lite".
func GenerationOfKind(kind string) (Generation, bool) {
	name, ok := strings.CutPrefix(strings.ToLower(kind), "tpu")
	name = strings.TrimPrefix(name, " ")
	switch name {
	case "v5":
		name = "v5p"
	case "v5 lite", "v6 lite":
		name = name[:2] + "e"
	case "7x":
		name = "tpu7x"
	}
	if !ok {
		return Generation{}, false
	}
	return LookupGeneration(name)
}
