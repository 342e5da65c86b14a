package system

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// Slice is a described slice of TPUs, or GPUs, that need not be at hand: where its devices are, and the
// plugin that can compile for them. It owns plugin memory until Close; what its methods return
// stays valid. It is safe for concurrent use.
type Slice struct {
	plugin   *pjrt.Plugin
	handle   *pjrt.Topology
	topology tpu.Topology
	facts    SliceFacts
	closed   atomic.Bool
}

// SliceFacts holds what is known of a described slice, as data.
type SliceFacts struct {
	// Name is the name in canonical form, such as "v5e:4x4" or "2x v5e:4x4".
	Name string `json:"name"`
	// Accelerator is the type as Cloud TPU names it, such as "v5litepod-16".
	Accelerator string `json:"accelerator"`
	// Slices is the number of equal slices that are joined.
	Slices int `json:"slices"`
	// Kind is the plugin's name of the devices, such as "TPU v5 lite".
	Kind string `json:"kind"`
	// Chips, Hosts and Devices count the chips, the machines and the devices of all slices.
	Chips   int `json:"chips"`
	Hosts   int `json:"hosts"`
	Devices int `json:"devices"`
	// DevicesPerChip is the number of devices that the runtime makes of a chip.
	DevicesPerChip int `json:"devices_per_chip"`
	// HBMBytes is the memory of one device that programs can use, in bytes, as the plugin says.
	HBMBytes int64 `json:"hbm_bytes"`
	// PeakFLOPS is the peak of one device in bfloat16 operations a second, from [tpu.Generations].
	PeakFLOPS float64 `json:"peak_flops"`
	// HBMBandwidth is the published rate of one device's memory in bytes a second, from
	// [tpu.Generations].
	HBMBandwidth float64 `json:"hbm_bandwidth"`
	// Wrap says along which axes the interconnect closes to a ring.
	Wrap [3]bool `json:"wrap"`
	// Twist says whether the ring is twisted as it closes.
	Twist bool `json:"twist"`
	// Plugin is the plugin's version text.
	Plugin string `json:"plugin"`
}

// joined is a number of slices before a name, as in "2x v5e-256".
var joined = regexp.MustCompile(`^([0-9]{1,4})\s*x\s+(.*)$`)

// ParseSlices reads the name of a slice or of several equal slices: a name that
// [tpu.ParseAccelerator] reads, with a number of slices before it if there are more than one, as in
// "2x v5e-256". A wrong name gives a [*tpu.AcceleratorError].
func ParseSlices(name string) (slices int, a tpu.Accelerator, err error) {
	slices = 1
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return 0, a, &tpu.AcceleratorError{Text: name, Reason: "it has letters that cannot be seen, such as a line's end", Hint: "leave them out"}
	}
	text := strings.TrimSpace(name)
	if m := joined.FindStringSubmatch(text); m != nil {
		// The expression lets digits through only, and few of them.
		if slices, err = strconv.Atoi(m[1]); err != nil || slices < 1 {
			return 0, a, &tpu.AcceleratorError{Text: name, Reason: "the number of slices is below 1", Hint: "write at least 1, as in 2x " + m[2]}
		}
		text = m[2]
	}
	a, err = tpu.ParseAccelerator(text)
	return slices, a, err
}

// CloudWrap says along which axes Cloud TPU closes a slice's interconnect to rings: a
// three-dimensional slice whose sizes are all multiples of 4 is a torus; in two dimensions an axis
// is a ring where it is as long as a pod's, 16 chips for v5e and v6e, and for v2 and v3 the whole
// pod is a torus. Sources: the Cloud TPU documentation, "TPU configurations", and the public table
// of slices in AI-Hypercomputer/maxtext.
func CloudWrap(a tpu.Accelerator) (wrap [3]bool) {
	shape, g := a.Shape(), a.Generation()
	switch g.Name {
	case "":
		return wrap
	case "v2", "v3":
		pod := a.Chips() == g.MaxChips
		return [3]bool{pod, pod, false}
	case "v5e", "v6e":
		return [3]bool{shape[0] == 16, shape[1] == 16, false}
	}
	torus := shape[0]%4 == 0 && shape[1]%4 == 0 && shape[2]%4 == 0
	return [3]bool{torus, torus, torus}
}

// maxDevices bounds the devices of all slices together: several times what jobs use, and a minute
// of libtpu's time.
const maxDevices = 1 << 17

// Describe describes a slice by name, through libtpu, without any TPU: "v5p:4x4x4", an accelerator
// type such as "v5litepod-16" with Cloud TPU's default shape, or several slices, "2x v5e-256". It
// takes milliseconds, most of it to load libtpu.
//
// The devices are those of the real runtime: v4 and v5p have one for each chip, which joins its two
// cores (megacore), v2, v3 and tpu7x one for each core.
//
// libtpu reads its environment as it is loaded. On a machine that shows no sign of a TPU (no
// /dev/accel*, no /dev/vfio/*, no such device on the PCI bus) Describe sets, in the environment of
// this process and only where nothing is set, TPU_SKIP_MDS_QUERY=1, TPU_ACCELERATOR_TYPE,
// TPU_WORKER_HOSTNAMES=localhost and TPU_WORKER_ID=0, as libtpu would ask the network for minutes
// otherwise, and ALLOW_MULTIPLE_LIBTPU_LOAD=1, so that several programs can compile side by side.
// Logger is told of them. Call Describe before other goroutines of the program read or change the
// environment through C. A machine with a TPU keeps its environment.
//
// A name such as "h100:8" describes GPUs in the same way, through the CUDA plugin: a100, h100, h200 and
// b200, in hosts of up to 8, whose coordinates are their numbers along x. The plugin and the assembler
// that it calls are what `tpustrategy install cuda` puts there.
//
// libtpu aborts the process for some programs that it cannot compile: compile in a process of its
// own what must not take others down.
//
// Errors: [*tpu.AcceleratorError] for a name of no slice that exists, [*pjrt.FindError] without
// libtpu, [ErrMetadataQuery], [*pjrt.PluginError], [*pjrt.Error] from libtpu.
func Describe(ctx context.Context, name string, opts DescribeOptions) (*Slice, error) {
	if IsGPUs(name) {
		return describeGPUs(ctx, name, opts)
	}
	start := time.Now()
	wrong := func(cause error) error { return &errkind.Fault{Op: "system: describe", Subject: name, Err: cause} }
	slices, a, err := ParseSlices(name)
	if err != nil {
		return nil, &errkind.Fault{Op: "system: describe", Err: err} // which names it
	}
	switch {
	case opts.Slices < 0:
		return nil, optionError("describe", fmt.Sprintf("%d slices", opts.Slices), "give a positive number, or 0 for what the name says")
	case opts.Slices > 0 && slices > 1 && slices != opts.Slices:
		return nil, optionError("describe", fmt.Sprintf("%q has %d slices and the option %d", name, slices, opts.Slices), "give one of them")
	case opts.Slices > 0:
		slices = opts.Slices
	}
	if slices > maxDevices/a.Devices() {
		return nil, &errkind.Fault{Op: "system: describe", Err: &tpu.AcceleratorError{Text: name, Reason: fmt.Sprintf(
			"%d slices of %d devices are more than the %d devices that are described at once", slices, a.Devices(), maxDevices)}}
	}
	found, err := Find(Options{Plugin: opts.Plugin, Getenv: opts.Getenv})
	if err != nil {
		return nil, wrong(err)
	}
	if err := prepare(thisHost(), a, opts); err != nil {
		return nil, wrong(err)
	}
	wrap := CloudWrap(a)
	if opts.Wrap != nil {
		wrap = *opts.Wrap
	}
	options := map[string]any{"wrap": bits(wrap)}
	if g := a.Generation(); g.DevicesPerChip < g.CoresPerChip {
		// Without it libtpu describes v4 as it was before its cores were joined.
		options["chip_config_name"] = "megacore"
	}
	if shape := a.Shape(); a.Hosts() == 1 {
		options["chips_per_host_bounds"] = []int64{int64(shape[0]), int64(shape[1]), int64(shape[2])}
	}
	if slices > 1 {
		options["num_slices"] = int64(slices)
	}
	s, err := opts.describe(ctx, found.Path, a.String(), options)
	if err != nil {
		return nil, wrong(err)
	}
	if err := s.read(slices, a); err != nil {
		return nil, errors.Join(wrong(err), s.Close())
	}
	if opts.Logger != nil {
		opts.Logger.Info("slice described", "topology", s.topology.String(), "plugin", found.Path, "elapsed", time.Since(start))
	}
	return s, nil
}

// describe has a plugin describe devices by name; options are those that follow from it.
func (o DescribeOptions) describe(ctx context.Context, path, name string, options map[string]any) (*Slice, error) {
	plugin, err := pjrt.Open(path, o.PluginCheck)
	if err != nil {
		return nil, err
	}
	maps.Copy(options, o.Options)
	handle, err := plugin.NewTopology(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return &Slice{plugin: plugin, handle: handle}, nil
}

func bits(wrap [3]bool) []int64 {
	out := make([]int64, len(wrap))
	for i, w := range wrap {
		if w {
			out[i] = 1
		}
	}
	return out
}

// read takes the facts from the plugin's description.
func (s *Slice) read(slices int, a tpu.Accelerator) error {
	name := a.String()
	if slices > 1 {
		name = fmt.Sprintf("%dx %s", slices, name)
	}
	devices := s.handle.Devices()
	var err error
	if s.topology, err = topologyOf(name, devices); err != nil {
		return err
	}
	g := a.Generation()
	// The options may have libtpu make other devices of a chip than the runtime.
	perChip := max(len(devices)/(slices*a.Chips()), 1)
	s.facts = SliceFacts{
		Name: name, Accelerator: a.Type(), Slices: slices, Kind: devices[0].Kind(),
		Chips: slices * a.Chips(), Hosts: s.topology.NumTasks(), Devices: len(devices), DevicesPerChip: perChip,
		PeakFLOPS:    g.PeakFLOPS / float64(perChip),
		HBMBandwidth: g.HBMBandwidth / float64(perChip),
		Plugin:       s.handle.PlatformVersion(),
	}
	attributes := s.handle.Attributes()
	s.facts.HBMBytes, _ = attributes["device_memory_bytes_limit"].(int64)
	if wrap, ok := attributes["wrap"].([]int64); ok {
		for i := range min(len(wrap), len(s.facts.Wrap)) {
			s.facts.Wrap[i] = wrap[i] != 0
		}
	}
	switch twist := attributes["twist"].(type) {
	case bool:
		s.facts.Twist = twist
	case int64:
		s.facts.Twist = twist != 0
	}
	return nil
}

// Topology returns where the devices of the slice are.
func (s *Slice) Topology() tpu.Topology { return s.topology }

// Facts returns what is known of the slice.
func (s *Slice) Facts() SliceFacts { return s.facts }

// Description returns the plugin's description, which stays the slice's to close.
func (s *Slice) Description() *pjrt.Topology { return s.handle }

// Plugin returns the plugin that compiles for the slice.
func (s *Slice) Plugin() *pjrt.Plugin { return s.plugin }

// Compile compiles a program for the slice; see [pjrt.Topology.Compile].
func (s *Slice) Compile(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error) {
	if s.handle == nil {
		return nil, errZero
	}
	return s.handle.Compile(ctx, program, opts)
}

// Close gives the description back. A second Close returns the first result.
func (s *Slice) Close() error {
	if s == nil || s.handle == nil {
		return nil
	}
	s.closed.Store(true)
	return s.handle.Close()
}

// Check returns nil until the slice is closed, and then an error that matches [pjrt.ErrClosed].
func (s *Slice) Check() error {
	switch {
	case s.handle == nil:
		return errZero
	case s.closed.Load():
		return errClosed("slice", "Describe")
	}
	return nil
}
