package system

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// gpu is a sort of GPU as a compiler needs to know it. Capability is NVIDIA's compute capability,
// processors the number of its multiprocessors, lanes their 32-bit units, shared the memory of one in
// bytes, and cache the second level's.
type gpu struct {
	name, model           string
	capability            int
	feature               string
	processors, lanes     int
	shared, perBlock      int64
	cache, memory         int64
	clock, rate, bfloat16 float64
}

// gpus are those that are described by name. Sizes, clocks and rates are those of openxla/xla,
// xla/backends/gpu/target_config/specs; peaks are of dense products in bfloat16, from NVIDIA's data
// sheets.
var gpus = []gpu{
	{"a100", "NVIDIA A100-SXM4-80GB", 8, "NONE", 108, 64, 167936, 166912, 41943040, 85100068864, 1.41, 2.03904e12, 312e12},
	{"h100", "NVIDIA H100 80GB HBM3", 9, "ACCELERATED_FEATURES", 132, 128, 233472, 232448, 52428800, 84942979072, 1.98, 3.35232e12, 989.4e12},
	{"h200", "NVIDIA H200 141GB HBM3e", 9, "ACCELERATED_FEATURES", 132, 128, 233472, 232448, 52428800, 151397597184, 1.98, 4.8e12, 989.4e12},
	{"b200", "NVIDIA B200", 10, "ACCELERATED_FEATURES", 148, 128, 233472, 232448, 132644864, 191514411008, 1.965, 7.67232e12, 2250e12},
}

// gpusOfAHost is the number of GPUs of a machine, which the links between them join.
const gpusOfAHost = 8

// gpuName is a sort of GPU and a number, such as "h100:8".
var gpuName = regexp.MustCompile(`^([abhl][0-9]{2,3}[a-z]*)(?::([0-9]{1,6}))?$`)

// IsGPUs says whether a name is meant for GPUs, such as "h100:8", and not for a slice of TPUs.
func IsGPUs(name string) bool { return gpuName.MatchString(strings.TrimSpace(name)) }

// CheckName says why [Describe] would not know a name, of a slice or of GPUs.
func CheckName(name string) error {
	if IsGPUs(name) {
		_, _, err := parseGPUs(name)
		return err
	}
	_, _, err := ParseSlices(name)
	return err
}

func parseGPUs(name string) (g gpu, count int, err error) {
	wrong := func(reason, hint string) error {
		return &errkind.Fault{Op: "system: describe", Subject: fmt.Sprintf("%q", name), Reason: reason, Hint: hint, Class: errkind.ValueError}
	}
	m := gpuName.FindStringSubmatch(strings.TrimSpace(name))
	if m == nil {
		return g, 0, wrong("it is no name of GPUs", "write such as h100:8")
	}
	i := slices.IndexFunc(gpus, func(g gpu) bool { return g.name == m[1] })
	if i < 0 {
		var known []string
		for _, g := range gpus {
			known = append(known, g.name)
		}
		return g, 0, wrong("such a GPU is not known", "there are "+strings.Join(known, ", "))
	}
	count = 1
	if m[2] != "" {
		count, _ = strconv.Atoi(m[2]) // the expression lets few digits through only
	}
	switch {
	case count < 1 || count > maxDevices:
		return g, 0, wrong(fmt.Sprintf("%d GPUs", count), fmt.Sprintf("give from 1 to %d", maxDevices))
	case count > gpusOfAHost && count%gpusOfAHost != 0:
		return g, 0, wrong(fmt.Sprintf("%d GPUs are no whole hosts", count), fmt.Sprintf("give up to %d, or a multiple of it", gpusOfAHost))
	}
	return gpus[i], count, nil
}

// config is the target configuration that the compiler takes in the place of a device.
func (g gpu) config() string {
	return fmt.Sprintf(`gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: %d shared_memory_per_block_optin: %d
  core_count: %d fpus_per_core: %d clock_rate_ghz: %g
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  memory_bandwidth: %.0f l2_cache_size: %d device_memory_size: %d
  cuda_compute_capability { major: %d feature_extension: %s }
  device_vendor: "NVIDIA Corporation" name: %q device_address_bits: 64
  driver_version: "12.9.0" runtime_version: "12.9.0" compile_time_toolkit_version: "12.9.0" dnn_version: "9.10.0"
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
device_description_str: %q
`, g.shared, g.perBlock, g.processors, g.lanes, g.clock, g.rate, g.cache, g.memory, g.capability, g.feature, g.model, g.model)
}

// describeGPUs describes GPUs that need not be here, through the CUDA plugin.
func describeGPUs(ctx context.Context, name string, opts DescribeOptions) (*Slice, error) {
	g, count, err := parseGPUs(name)
	if err != nil {
		return nil, err
	}
	wrong := func(cause error) error { return &errkind.Fault{Op: "system: describe", Subject: name, Err: cause} }
	if opts.Slices > 1 || opts.Wrap != nil {
		return nil, optionError("describe", "slices or rings of GPUs", "leave them out")
	}
	found, err := findKind("cuda", Options{Plugin: opts.Plugin, Getenv: opts.Getenv})
	if err != nil {
		return nil, wrong(err)
	}
	if strings.Contains(filepath.Base(found.Path), "libtpu") { // which would ask the network for minutes where it runs
		return nil, optionError("describe", "libtpu for GPUs", "give the CUDA plugin, or leave the plugin out")
	}
	hosts := max(count/gpusOfAHost, 1)
	canonical := fmt.Sprintf("%s:%d", g.name, count)
	options := map[string]any{"target_config": g.config(), "topology": fmt.Sprintf("1x%dx%d", hosts, count/hosts)}
	s, err := opts.describe(ctx, found.Path, g.name, options)
	if err != nil {
		return nil, wrong(err)
	}
	devices := s.handle.Devices()
	if s.topology, err = tpu.LogicalTopology(tpu.LogicalOptions{Devices: len(devices), MeshShape: []int{len(devices), 1, 1, 1}, Tasks: hosts}); err == nil && len(devices) != count {
		err = fmt.Errorf("the plugin describes %d devices of %d", len(devices), count)
	}
	if err != nil {
		return nil, errors.Join(wrong(err), s.Close())
	}
	s.facts = SliceFacts{
		Name: canonical, Accelerator: g.name, Slices: 1, Kind: g.model, Chips: count, Hosts: hosts, Devices: count, DevicesPerChip: 1,
		HBMBytes: g.memory, PeakFLOPS: g.bfloat16, HBMBandwidth: g.rate, Plugin: s.handle.PlatformVersion(),
	}
	return s, nil
}
