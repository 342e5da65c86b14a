package system

import (
	"context"
	"log/slog"
	"net"
	"os"
	"time"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Options specifies the devices to open. The zero value opens the TPU of this host.
type Options struct {
	// CPUDevices opens the XLA CPU plugin with this number of devices, if positive.
	CPUDevices int
	// MeshShape is the mesh [x, y, z, core] of devices without coordinates, in the order of their
	// ids. Its product must be the number of devices. If nil, it is [n/2, 1, 1, 2] for an even
	// number n of CPU devices, [n, 1, 1, 1] for an odd number, and [n, 1, 1, 1] for GPUs. MeshShape
	// must be nil for TPU devices, which have coordinates.
	MeshShape []int
	// CPUSlices divides the CPU devices into this number of slices, adjacent along x. It must
	// divide the size of the mesh in x. 0 means 1. It changes neither results nor speed; it is for
	// testing programs that use slices.
	CPUSlices int
	// Plugin is the path of the plugin's shared library. If empty, the plugin is searched for by
	// [pjrt.FindPlugin], and libtpu is opened only if the host has a TPU (see [HasTPU]).
	Plugin string
	// PluginCheck contains the conditions under which a plugin file is trusted; see [pjrt.VerifyPlugin].
	PluginCheck pjrt.OpenOptions
	// ClientOptions are passed to the plugin unchanged.
	ClientOptions map[string]any
	// KeyValues is the store that plugins such as CUDA use to connect the clients of several
	// processes; see [pjrt.ClientOptions].
	KeyValues pjrt.KeyValueStore
	// Getenv reads the environment for the plugin search and the check of the cluster. If nil,
	// os.Getenv is used.
	Getenv func(string) string
	// KeepEnvironment prevents changes to the environment of the process. By default, on a host
	// with a TPU, Open adds --xla_tpu_use_enhanced_launch_barrier=true to LIBTPU_INIT_ARGS before
	// it opens the plugin, as JAX does. A value of this flag that is already set is kept.
	KeepEnvironment bool

	// Resolver determines the processes that share the slice, like TensorFlow's TPUClusterResolver.
	// If it is set, the environment is checked, the devices are compared with the cluster, and errors
	// contain the processes that are missing. Without Resolver and Cluster there are no such checks.
	Resolver clusterresolver.Resolver
	// Cluster is an already resolved cluster. It is used instead of Resolver.
	Cluster *clusterresolver.Cluster
	// Metadata reads the metadata server, with which the environment is compared. If nil, only the
	// consistency of the environment is checked.
	Metadata *clusterresolver.MetadataClient
	// AllowFindings continues despite findings that make a job hang or compute wrong results. The
	// findings are logged. A resolver that checks the environment itself still fails; see
	// [clusterresolver.SliceOptions].
	AllowFindings bool
	// BusyTimeout is the maximum time to retry if the TPU is in use but no running process uses it,
	// for example after a kill. 0 means one minute. A negative value disables the retry.
	BusyTimeout time.Duration
	// Connect opens the devices instead of a plugin, for example the devices of a simulated
	// process. If the runtime has a method Topology() tpu.Topology, its result is used; otherwise
	// the topology is determined as for a plugin.
	Connect func(ctx context.Context) (Runtime, error)
	// Dial opens connections to other processes, to determine which processes are missing after a
	// failed start. If nil, a [net.Dialer] is used.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Logger receives one record for each step. If nil, nothing is logged.
	Logger *slog.Logger
}

// maxCPUDevices limits CPUDevices, because the CPU plugin allocates threads and memory for each device.
const maxCPUDevices = 1 << 14

// optionError returns an error for invalid options.
func optionError(op, reason, hint string) error {
	return &errkind.Fault{Op: "system: " + op, Reason: reason, Hint: hint, Class: errkind.ValueError}
}

// DescribeOptions configures [Describe]. With the zero value, slices have the default properties of
// Cloud TPU.
type DescribeOptions struct {
	// Plugin is the path of libtpu. If empty, libtpu is searched for by [pjrt.FindPlugin].
	Plugin string
	// PluginCheck contains the conditions under which a plugin file is trusted; see [pjrt.VerifyPlugin].
	PluginCheck pjrt.OpenOptions
	// Slices is the number of equal slices, connected by the data-center network. 0 means the
	// number in the name, or 1.
	Slices int
	// Wrap specifies, for x, y and z, whether the interconnect is a ring. If nil, the result of
	// [CloudWraparound] is used.
	Wrap *[3]bool
	// Options are passed to the plugin. They override the options that Describe derives from the
	// name and the other fields.
	Options map[string]any
	// KeepEnvironment prevents changes to the environment of the process. By default, Describe sets
	// variables for libtpu on a host without a TPU.
	KeepEnvironment bool
	// Getenv reads the environment for the plugin search. If nil, os.Getenv is used.
	Getenv func(string) string
	// Logger receives a record when the slice is described, and a record of the environment
	// variables that Describe sets. If nil, nothing is logged.
	Logger *slog.Logger
}

func getenvOrDefault(o Options) func(string) string {
	if o.Getenv != nil {
		return o.Getenv
	}
	return os.Getenv
}
