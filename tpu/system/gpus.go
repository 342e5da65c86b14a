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

// gpu describes a GPU model with the properties that the compiler needs. capability is the major
// compute capability, coresPerMultiprocessor the number of 32-bit units of a multiprocessor,
// sharedBytes its shared memory, cacheBytes the size of the second-level cache, and bandwidth the
// memory bandwidth in bytes per second.
type gpu struct {
	name, model                             string
	capability                              int
	feature                                 string
	multiprocessors, coresPerMultiprocessor int
	sharedBytes, sharedBytesPerBlock        int64
	cacheBytes, memoryBytes                 int64
	clockGHz, bandwidth, peakFLOPS          float64
}

// gpus lists the supported GPUs. Sizes, clock rates and memory bandwidths are from openxla/xla
// (xla/backends/gpu/target_config/specs). Peaks are for dense bfloat16 products, from NVIDIA's data
// sheets.
var gpus = []gpu{
	{"a100", "NVIDIA A100-SXM4-80GB", 8, "NONE", 108, 64, 167936, 166912, 41943040, 85100068864, 1.41, 2.03904e12, 312e12},
	{"h100", "NVIDIA H100 80GB HBM3", 9, "ACCELERATED_FEATURES", 132, 128, 233472, 232448, 52428800, 84942979072, 1.98,
		3.35232e12, 989.4e12},
	{"h200", "NVIDIA H200 141GB HBM3e", 9, "ACCELERATED_FEATURES", 132, 128, 233472, 232448, 52428800, 151397597184, 1.98,
		4.8e12, 989.4e12},
	{"b200", "NVIDIA B200", 10, "ACCELERATED_FEATURES", 148, 128, 233472, 232448, 132644864, 191514411008, 1.965,
		7.67232e12, 2250e12},
}

// gpusPerHost is the maximum number of GPUs of a host.
const gpusPerHost = 8

// gpuPattern matches a GPU model with an optional number, such as "h100:8".
var gpuPattern = regexp.MustCompile(`^([abhl][0-9]{2,3}[a-z]*)(?::([0-9]{1,6}))?$`)

// IsGPUName reports whether a name such as "h100:8" has the form of a GPU name.
func IsGPUName(name string) bool { return gpuPattern.MatchString(strings.TrimSpace(name)) }

// CheckSliceName returns an error if name is not a valid slice or GPU name for [Describe].
func CheckSliceName(name string) error {
	if IsGPUName(name) {
		_, _, err := parseGPUs(name)
		return err
	}
	_, _, err := ParseSlices(name)
	return err
}

func parseGPUs(name string) (g gpu, count int, err error) {
	fail := func(reason, hint string) error {
		return &errkind.Fault{Op: "system: describe", Subject: fmt.Sprintf("%q", name), Reason: reason, Hint: hint,
			Class: errkind.ValueError}
	}
	m := gpuPattern.FindStringSubmatch(strings.TrimSpace(name))
	if m == nil {
		return g, 0, fail("invalid GPU name", "write for example h100:8")
	}
	i := slices.IndexFunc(gpus, func(g gpu) bool { return g.name == m[1] })
	if i < 0 {
		var known []string
		for _, g := range gpus {
			known = append(known, g.name)
		}
		return g, 0, fail("unknown GPU", "use one of "+strings.Join(known, ", "))
	}
	count = 1
	if m[2] != "" {
		count, _ = strconv.Atoi(m[2]) // gpuPattern matches only short numbers
	}
	switch {
	case count < 1 || count > maxDevices:
		return g, 0, fail(fmt.Sprintf("%d GPUs", count), fmt.Sprintf("use a number from 1 to %d", maxDevices))
	case count > gpusPerHost && count%gpusPerHost != 0:
		return g, 0, fail(fmt.Sprintf("%d GPUs do not fill complete hosts", count),
			fmt.Sprintf("use at most %d, or a multiple of %d", gpusPerHost, gpusPerHost))
	}
	return gpus[i], count, nil
}

// targetConfig returns the XLA target configuration of the GPU, in protobuf text format. It allows
// compilation without a device.
func (g gpu) targetConfig() string {
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
`, g.sharedBytes, g.sharedBytesPerBlock, g.multiprocessors, g.coresPerMultiprocessor, g.clockGHz, g.bandwidth,
		g.cacheBytes, g.memoryBytes, g.capability, g.feature, g.model, g.model)
}

// describeGPUs implements Describe for GPUs.
func describeGPUs(ctx context.Context, name string, opts DescribeOptions) (*Slice, error) {
	g, count, err := parseGPUs(name)
	if err != nil {
		return nil, err
	}
	fail := func(cause error) error { return &errkind.Fault{Op: "system: describe", Subject: name, Err: cause} }
	if opts.Slices > 1 || opts.Wrap != nil {
		return nil, optionError("describe", "Slices and Wrap cannot be used with GPUs", "do not set them")
	}
	found, err := findPluginKind("cuda", Options{Plugin: opts.Plugin, Getenv: opts.Getenv})
	if err != nil {
		return nil, fail(err)
	}
	if strings.Contains(filepath.Base(found.Path), "libtpu") { // libtpu would query the metadata server for minutes
		return nil, optionError("describe", "libtpu cannot describe GPUs", "use the CUDA plugin, or do not set Plugin")
	}
	hosts := max(count/gpusPerHost, 1)
	canonical := fmt.Sprintf("%s:%d", g.name, count)
	options := map[string]any{"target_config": g.targetConfig(), "topology": fmt.Sprintf("1x%dx%d", hosts, count/hosts)}
	s, err := opts.describe(ctx, found.Path, g.name, options)
	if err != nil {
		return nil, fail(err)
	}
	devices := s.handle.Devices()
	shape := []int{len(devices), 1, 1, 1}
	s.topology, err = tpu.LogicalTopology(tpu.LogicalOptions{Devices: len(devices), MeshShape: shape, Tasks: hosts})
	if err == nil && len(devices) != count {
		err = fmt.Errorf("the plugin describes %d devices, expected %d", len(devices), count)
	}
	if err != nil {
		return nil, errors.Join(fail(err), s.Close())
	}
	s.info = SliceInfo{
		Name: canonical, Accelerator: g.name, Slices: 1, Kind: g.model, Chips: count, Hosts: hosts, Devices: count,
		DevicesPerChip: 1,
		HBMBytes:       g.memoryBytes, PeakFLOPS: g.peakFLOPS, HBMBandwidth: g.bandwidth, Plugin: s.handle.PlatformVersion(),
	}
	return s, nil
}
