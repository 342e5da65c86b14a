package cost

import "github.com/tpustrategy/tpustrategy/tpu/system"

// Constant is a property of a chip generation that a [Prediction] uses.
type Constant struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	// Basis is the source of the figure: "published" by the manufacturer or in the documentation of
	// the chip, "compiler" if libtpu's own estimates imply it, "fitted" to a published measurement
	// of a single operation, or "assumed" if nothing is known.
	Basis string `json:"basis"`
	// Source is the reference of the figure.
	Source string `json:"source"`
}

const published, compilers, fitted, assumed = "published", "compiler", "fitted", "assumed"

// The names of the constants, with their units.
const (
	clockRate     = "clock of a core, cycles a second"
	peakRate      = "peak of a device, bfloat16 operations a second"
	memoryRate    = "rate of a device's memory, bytes a second"
	linkRate      = "rate of a link between chips, bytes a second each way"
	dieRate       = "rate between the devices of a chip, bytes a second each way"
	hopTime       = "latency of a link, seconds"
	networkRate   = "rate of a chip to other slices, bytes a second"
	tileSize      = "side of a matrix unit, elements"
	emittedShare  = "share of the peak at which the compiler sees products"
	productTime   = "time of products over the compiler's cycles"
	memoryShare   = "share of the memory's rate that operations reach"
	linkShare     = "share of the links' rate that collectives reach"
	collectiveLag = "time that a collective takes to begin, seconds"
)

const (
	scalingBook = "jax-ml/scaling-book, tpus.md, table of interconnects"
	recipes     = "AI-Hypercomputer/tpu-recipes, microbenchmarks/"
	peakSource  = "tpu.Generations"
	clockSource = "the published peak over the operations of a cycle"
)

// chip contains the properties of a generation that tpu.Generation does not contain. Operations are
// per core and cycle, and each multiplier counts as two operations. Link is the rate in one
// direction. Emitted is a mean over products of 4096 x 4096 and of 8192 x 8192 bfloat16 matrices,
// compiled with libtpu 0.0.51 without flags.
type chip struct {
	operations, tile float64
	link, network    float64
	emitted          float64
}

var chips = map[string]chip{
	"v2":    {32768, 128, 0, 6.25e9, 0.98},
	"v3":    {65536, 128, 100e9, 6.25e9, 0.961},
	"v4":    {131072, 128, 45e9, 6.25e9, 0.903},
	"v5e":   {131072, 128, 45e9, 3.125e9, 0.922},
	"v5p":   {131072, 128, 90e9, 6.25e9, 0.931},
	"v6e":   {524288, 256, 90e9, 12.5e9, 0.782},
	"tpu7x": {524288, 256, 90e9, 12.5e9, 0.806},
}

type class string

const ofProducts, ofMemory, ofCollectives class = "products", "memory", "collectives"

// fits contains all fitted figures: at most one for each generation and class of operation, each
// from published measurements of single operations of a millisecond or more, or, for a latency, of
// the smallest ones. No figure is fitted to a model's step.
var fits = map[string]map[class]Constant{
	"v6e": {
		ofProducts: {productTime, 0.904, fitted, recipes + "README.md: matmul 8192 x 8192 x 8192 in 1.3288 ms"},
		ofMemory:   {memoryShare, 0.829, fitted, recipes + "README.md: copy of 32 MiB at 1359.6 GB/s"},
		ofCollectives: {linkShare, 0.655, fitted,
			recipes + "trillium/collectives: all-reduce of 0.606 GB on v6e-256 at 235.76 GB/s"},
	},
	"tpu7x": {
		ofProducts: {productTime, 1.139, fitted,
			recipes + "ironwood/README.md: gemm 16384 and 32768 at 950.1 and 956.4 TFLOP/s"},
		ofMemory: {memoryShare, 0.868, fitted, recipes + "ironwood/hbm: copies of 2 to 8 GiB at 3198 to 3210 GB/s"},
		ofCollectives: {collectiveLag, 13e-6, fitted,
			recipes + "ironwood/collectives: all-gather of 1.6 to 403 MB on 2x2x1 and 2x2x2"},
	},
}

// slice describes one or several equal TPU slices, with the constants for predictions.
type slice struct {
	// shape is the number of chips along x, y and z, and wrap reports whether they form a ring.
	shape [3]int
	wrap  [3]bool
	// perChip is the number of devices per chip. count is the number of slices.
	perChip, count int
	// constants are the properties of a device or a link, by name.
	constants map[string]Constant
	// layouts caches the layouts of groups of devices.
	layouts []groupLayout
}

// newSlice returns the slice with the given name, such as "v5e:2x4", or nil if the name is not the
// name of a TPU slice.
func newSlice(name string) *slice {
	count, a, err := system.ParseSlices(name)
	if err != nil {
		return nil
	}
	g := a.Generation()
	c, known := chips[g.Name]
	if !known {
		return nil
	}
	s := &slice{shape: a.Shape(), wrap: system.CloudWraparound(a), perChip: g.DevicesPerChip, count: count,
		constants: map[string]Constant{}}
	set := func(name string, value float64, basis, source string) {
		s.constants[name] = Constant{name, value, basis, source}
	}
	perChip := float64(s.perChip)
	set(clockRate, g.PeakFLOPS/float64(g.CoresPerChip)/c.operations, published, clockSource)
	set(peakRate, g.PeakFLOPS/perChip, published, peakSource)
	set(memoryRate, g.HBMBandwidth/perChip, published, peakSource)
	set(linkRate, c.link, published, scalingBook)
	set(hopTime, 1e-6, published, scalingBook)
	set(networkRate, c.network, published, scalingBook)
	set(tileSize, c.tile, published, "jax-ml/scaling-book, tpus.md")
	set(emittedShare, c.emitted, compilers, "libtpu 0.0.51: cycles of products of 4096 and 8192")
	set(productTime, 1, assumed, "no single operation of this generation is published")
	set(memoryShare, 0.85, assumed, "between v6e and tpu7x, of which measurements are published")
	set(linkShare, 1, assumed, "no single operation of this generation is published")
	set(collectiveLag, 0, assumed, "no single operation of this generation is published")
	if g.Name == "tpu7x" {
		set(dieRate, 6*c.link, published, "Cloud TPU documentation, TPU7x: six times a link between chips")
	}
	for _, fit := range fits[g.Name] {
		s.constants[fit.Name] = fit
	}
	return s
}

func (s *slice) value(name string) float64 { return s.constants[name].Value }

// memorySeconds returns the time to transfer the given number of bytes to or from a device's main
// memory.
func (s *slice) memorySeconds(bytes float64) float64 {
	return bytes / (s.value(memoryRate) * s.value(memoryShare))
}

func (s *slice) cycleSeconds(cycles int64) float64 { return float64(cycles) / s.value(clockRate) }
