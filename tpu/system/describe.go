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

// Slice describes one or several TPU slices, or GPUs, without the hardware. It contains the topology
// of the devices and the plugin that compiles for them. A Slice owns plugin memory until it is
// closed. Values returned by its methods remain valid afterwards. A Slice is safe for concurrent use.
type Slice struct {
	plugin   *pjrt.Plugin
	handle   *pjrt.Topology
	topology tpu.Topology
	info     SliceInfo
	closed   atomic.Bool
}

// SliceInfo contains the properties of a Slice.
type SliceInfo struct {
	// Name is the canonical name, such as "v5e:4x4" or "2x v5e:4x4".
	Name string `json:"name"`
	// Accelerator is the Cloud TPU accelerator type, such as "v5litepod-16".
	Accelerator string `json:"accelerator"`
	// Slices is the number of slices, which are equal.
	Slices int `json:"slices"`
	// Kind is the plugin's name for the device kind, such as "TPU v5 lite".
	Kind string `json:"kind"`
	// Chips, Hosts and Devices are totals over all slices.
	Chips   int `json:"chips"`
	Hosts   int `json:"hosts"`
	Devices int `json:"devices"`
	// DevicesPerChip is the number of devices that the runtime creates for a chip.
	DevicesPerChip int `json:"devices_per_chip"`
	// HBMBytes is the memory in bytes that programs can use on a device, as reported by the plugin.
	HBMBytes int64 `json:"hbm_bytes"`
	// PeakFLOPS is the peak performance of a device in bfloat16 operations per second, from
	// [tpu.Generations].
	PeakFLOPS float64 `json:"peak_flops"`
	// HBMBandwidth is the memory bandwidth of a device in bytes per second, from [tpu.Generations].
	HBMBandwidth float64 `json:"hbm_bandwidth"`
	// Wrap reports, for x, y and z, whether the interconnect is a ring.
	Wrap [3]bool `json:"wrap"`
	// Twist reports whether the torus is twisted.
	Twist bool `json:"twist"`
	// Plugin is the version text of the plugin.
	Plugin string `json:"plugin"`
}

// slicesPrefix matches a name with a number of slices, such as "2x v5e-256".
var slicesPrefix = regexp.MustCompile(`^([0-9]{1,4})\s*x\s+(.*)$`)

// ParseSlices parses the name of one or several equal slices. The name is a name for
// [tpu.ParseAccelerator], optionally preceded by the number of slices, as in "2x v5e-256". An
// invalid name is a [*tpu.AcceleratorError].
func ParseSlices(name string) (slices int, a tpu.Accelerator, err error) {
	slices = 1
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return 0, a, &tpu.AcceleratorError{Text: name, Reason: "the name contains characters that are not printable",
			Hint: "remove them"}
	}
	text := strings.TrimSpace(name)
	if m := slicesPrefix.FindStringSubmatch(text); m != nil {
		if slices, err = strconv.Atoi(m[1]); err != nil || slices < 1 {
			return 0, a, &tpu.AcceleratorError{Text: name, Reason: "the number of slices must be at least 1",
				Hint: "write for example 2x " + m[2]}
		}
		text = m[2]
	}
	a, err = tpu.ParseAccelerator(text)
	return slices, a, err
}

// CloudWraparound reports, for x, y and z, whether the interconnect of a slice on Cloud TPU forms a
// ring. A three-dimensional slice is a torus if all its sizes are multiples of 4. For v5e and v6e,
// an axis is a ring if it has 16 chips, the size of the pod. For v2 and v3, only a complete pod is
// a torus. The sources are the Cloud TPU documentation ("TPU configurations") and the table of
// slices in AI-Hypercomputer/maxtext.
func CloudWraparound(a tpu.Accelerator) (wrap [3]bool) {
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

// maxDevices is the maximum number of devices of all slices. It is several times larger than real
// jobs and takes libtpu about a minute.
const maxDevices = 1 << 17

// Describe returns the description of a slice from libtpu, without a TPU. The name is a topology
// such as "v5p:4x4x4", an accelerator type such as "v5litepod-16", or several slices such as "2x
// v5e-256". Describe takes milliseconds, most of which loads libtpu.
//
// The devices are the devices of the runtime: one for each chip of v4 and v5p, whose two cores are
// combined (megacore), and one for each core of v2, v3 and tpu7x.
//
// libtpu reads its environment when it is loaded. On a host without a TPU (see [HasTPU]) it would query
// the metadata server for minutes. Therefore Describe sets TPU_SKIP_MDS_QUERY=1, TPU_ACCELERATOR_TYPE,
// TPU_WORKER_HOSTNAMES=localhost and TPU_WORKER_ID=0 in the environment of the process, and
// ALLOW_MULTIPLE_LIBTPU_LOAD=1 so that several processes can load libtpu. It does not change variables
// that are already set, logs the variables that it sets, and does not change the environment on a host
// with a TPU. Call Describe before other goroutines access the environment through C.
//
// A name such as "h100:8" describes GPUs with the CUDA plugin. The supported GPUs are a100, h100,
// h200 and b200, with up to 8 per host and coordinates along x. The command `tpustrategy install
// cuda` installs the plugin and the assembler that it needs.
//
// libtpu aborts the process for some programs that it cannot compile. Compile in a separate process
// (package pjrt/worker) if this is not acceptable.
//
// Errors are [*tpu.AcceleratorError] for an invalid name, [*pjrt.FindError] if libtpu is not found,
// [ErrMetadataQuery], [*pjrt.PluginError], and [*pjrt.Error] from libtpu.
func Describe(ctx context.Context, name string, opts DescribeOptions) (*Slice, error) {
	if IsGPUName(name) {
		return describeGPUs(ctx, name, opts)
	}
	start := time.Now()
	fail := func(cause error) error { return &errkind.Fault{Op: "system: describe", Subject: name, Err: cause} }
	slices, a, err := ParseSlices(name)
	if err != nil {
		return nil, &errkind.Fault{Op: "system: describe", Err: err} // err contains the name
	}
	switch {
	case opts.Slices < 0:
		return nil, optionError("describe", fmt.Sprintf("%d slices", opts.Slices),
			"use a positive number, or 0 for the number in the name")
	case opts.Slices > 0 && slices > 1 && slices != opts.Slices:
		return nil, optionError("describe", fmt.Sprintf("%q has %d slices, but Slices is %d", name, slices, opts.Slices),
			"use only one of them")
	case opts.Slices > 0:
		slices = opts.Slices
	}
	if slices > maxDevices/a.Devices() {
		return nil, &errkind.Fault{Op: "system: describe", Err: &tpu.AcceleratorError{Text: name, Reason: fmt.Sprintf(
			"%d slices with %d devices exceed the limit of %d devices", slices, a.Devices(), maxDevices)}}
	}
	found, err := FindPlugin(Options{Plugin: opts.Plugin, Getenv: opts.Getenv})
	if err != nil {
		return nil, fail(err)
	}
	if err := prepareHostWithoutTPU(localHost(), a, opts); err != nil {
		return nil, fail(err)
	}
	wrap := CloudWraparound(a)
	if opts.Wrap != nil {
		wrap = *opts.Wrap
	}
	options := map[string]any{"wrap": encodeWraparound(wrap)}
	if g := a.Generation(); g.DevicesPerChip < g.CoresPerChip {
		// The default configuration of libtpu for v4 has one device for each core.
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
		return nil, fail(err)
	}
	if err := s.readInfo(slices, a); err != nil {
		return nil, errors.Join(fail(err), s.Close())
	}
	if opts.Logger != nil {
		opts.Logger.Info("slice described", "topology", s.topology.String(), "plugin", found.Path, "elapsed",
			time.Since(start))
	}
	return s, nil
}

// describe opens the plugin at path and returns its description of the named slice. options are the
// default options of the topology, which o.Options override.
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

func encodeWraparound(wrap [3]bool) []int64 {
	out := make([]int64, len(wrap))
	for i, w := range wrap {
		if w {
			out[i] = 1
		}
	}
	return out
}

// readInfo sets the topology and the info of the Slice from the plugin's description.
func (s *Slice) readInfo(slices int, a tpu.Accelerator) error {
	name := a.String()
	if slices > 1 {
		name = fmt.Sprintf("%dx %s", slices, name)
	}
	devices := s.handle.Devices()
	var err error
	if s.topology, err = topologyFromDevices(name, devices); err != nil {
		return err
	}
	g := a.Generation()
	// With other options, libtpu can create another number of devices per chip than the runtime.
	perChip := max(len(devices)/(slices*a.Chips()), 1)
	s.info = SliceInfo{
		Name: name, Accelerator: a.Type(), Slices: slices, Kind: devices[0].Kind(),
		Chips: slices * a.Chips(), Hosts: s.topology.NumTasks(), Devices: len(devices), DevicesPerChip: perChip,
		PeakFLOPS:    g.PeakFLOPS / float64(perChip),
		HBMBandwidth: g.HBMBandwidth / float64(perChip),
		Plugin:       s.handle.PlatformVersion(),
	}
	attributes := s.handle.Attributes()
	s.info.HBMBytes, _ = attributes["device_memory_bytes_limit"].(int64)
	if wrap, ok := attributes["wrap"].([]int64); ok {
		for i := range min(len(wrap), len(s.info.Wrap)) {
			s.info.Wrap[i] = wrap[i] != 0
		}
	}
	switch twist := attributes["twist"].(type) {
	case bool:
		s.info.Twist = twist
	case int64:
		s.info.Twist = twist != 0
	}
	return nil
}

// Topology returns the topology of the slice.
func (s *Slice) Topology() tpu.Topology { return s.topology }

// Info returns the properties of the slice.
func (s *Slice) Info() SliceInfo { return s.info }

// Description returns the plugin's description, which the Slice owns.
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

// Close releases the plugin's description. Further calls return the result of the first call.
func (s *Slice) Close() error {
	if s == nil || s.handle == nil {
		return nil
	}
	s.closed.Store(true)
	return s.handle.Close()
}

// Check returns nil, or an error that matches [pjrt.ErrClosed] if the slice is closed or is the
// zero value.
func (s *Slice) Check() error {
	switch {
	case s.handle == nil:
		return errZero
	case s.closed.Load():
		return closedError("slice", "Describe")
	}
	return nil
}
