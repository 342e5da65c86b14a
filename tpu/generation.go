package tpu

import (
	"slices"
	"strings"
)

// Generation contains the properties of a TPU generation.
type Generation struct {
	// Name is the name in topologies, such as "v5e" in "v5e:4x4".
	Name string
	// TypePrefix is the name in accelerator types, such as "v5litepod" in "v5litepod-16".
	TypePrefix string
	// TypeCountsCores is true if the number in an accelerator type counts TensorCores, and false if it
	// counts chips.
	TypeCountsCores bool
	// CoresPerChip is the number of TensorCores of a chip.
	CoresPerChip int
	// DevicesPerChip is the number of devices that the runtime creates for a chip. It is less than
	// CoresPerChip if the runtime combines the cores of a chip into one device, as for v4
	// (megacore) and v5p.
	DevicesPerChip int
	// Dims is the number of dimensions of the interconnect, 2 or 3.
	Dims int
	// ChipsPerHost is the number of chips of each host in a slice with several hosts.
	// MaxChipsPerHost is the maximum number of chips of a slice with one host.
	ChipsPerHost, MaxChipsPerHost int
	// MaxChips is the number of chips of a full pod.
	MaxChips int
	// HBMBytes is the memory of a chip in bytes. The runtime reserves some of it.
	HBMBytes int64
	// HBMBandwidth is the memory bandwidth of a chip in bytes per second.
	HBMBandwidth float64
	// PeakFLOPS is the peak performance of a chip in bfloat16 operations per second.
	PeakFLOPS float64
}

const gibibyte = 1 << 30

// Generations returns the supported generations, oldest first.
//
// The sizes and performance figures are from the Cloud TPU documentation at docs.cloud.google.com/tpu
// ("TPU v2", "TPU v3", "TPU v4", "TPU v5e", "TPU v5p", "TPU v6e", "TPU7x (Ironwood)"). DevicesPerChip
// is from the table accelerator_to_spec_map of AI-Hypercomputer/maxtext. The files
// testdata/generations.tsv and testdata/slices.tsv contain the published values for tests.
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

// LookupGeneration returns the generation with the given name or type prefix. It also accepts the
// names "v5lite" and "v7x". The second result reports whether the generation exists.
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

// GenerationForDeviceKind returns the generation for a device kind that a plugin reports, such as
// "TPU v5 lite". The second result reports whether the kind is known.
func GenerationForDeviceKind(kind string) (Generation, bool) {
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
