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

// Options say which devices to open. The zero value opens the TPU of this machine.
type Options struct {
	// CPUDevices, if positive, opens the XLA CPU plugin with that many devices.
	CPUDevices int
	// MeshShape is the grid [x, y, z, core] that devices without places of their own form, in the
	// order of their ids; its product is their number. If nil, it is [CPUDevices/2, 1, 1, 2] of CPU
	// devices, [CPUDevices, 1, 1, 1] of an odd number of them, and a line of a GPU plugin's. The
	// places of a TPU's devices are known, and it is refused.
	MeshShape []int
	// CPUSlices has the CPU devices stand for so many slices, side by side along x, which it divides;
	// 0 is 1. It changes no number and no speed: it is for trying what asks for slices.
	CPUSlices int
	// Plugin is the path of the plugin's shared library. If empty, it is looked for as [pjrt.Find]
	// says, and one for a TPU is opened only where there are signs of a TPU.
	Plugin string
	// PluginCheck says whose plugin files are trusted, and which hash the plugin must have, if any;
	// see [pjrt.Inspect].
	PluginCheck pjrt.OpenOptions
	// ClientOptions are handed to the plugin as they are.
	ClientOptions map[string]any
	// KeyValues is the store by which the plugin's clients of several processes find each other,
	// for a plugin that needs one; see [pjrt.ClientOptions].
	KeyValues pjrt.KeyValueStore
	// Getenv reads the environment for the plugin search and the check of the cluster; nil is
	// os.Getenv.
	Getenv func(string) string
	// KeepEnvironment leaves the process's environment as it is. Without it, Open adds
	// --xla_tpu_use_enhanced_launch_barrier=true to LIBTPU_INIT_ARGS before it opens the plugin on a
	// machine with a TPU, as JAX does, unless the flag is named there already.
	KeepEnvironment bool

	// Resolver finds out which processes share the slice, as a TPUClusterResolver does in
	// TensorFlow. Then the environment is checked, the devices are counted against the cluster, and
	// errors name the processes that are missing. Without Resolver and Cluster nothing is expected.
	Resolver clusterresolver.Resolver
	// Cluster is what a resolver has found already; it is given in place of Resolver.
	Cluster *clusterresolver.Cluster
	// Metadata reads what the environment is checked against; nil checks the environment by itself.
	Metadata *clusterresolver.MetadataClient
	// AllowFindings starts in spite of findings with which a job would hang or compute wrongly;
	// they are logged. A resolver that checks the environment itself refuses all the same, see
	// [clusterresolver.SliceOptions].
	AllowFindings bool
	// BusyTimeout bounds how long a TPU is tried again that is in use by no process that is alive, as
	// after a kill; 0 is a minute, and a negative time does not try again.
	BusyTimeout time.Duration
	// Connect opens the devices in the place of a plugin, such as those of a simulated process. A
	// runtime with a method Topology() tpu.Topology says where they are; otherwise that is found
	// out as it is for a plugin's.
	Connect func(ctx context.Context) (Runtime, error)
	// Dial opens the connections by which a failed start-up finds out which processes are missing;
	// nil is a [net.Dialer]'s.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Logger receives a line for each step of the start-up; nil discards.
	Logger *slog.Logger
}

// maxCPUDevices bounds the devices that the CPU plugin is asked for: it makes threads and memory
// for each.
const maxCPUDevices = 1 << 14

// optionError is the error of options that make no sense.
func optionError(op, reason, hint string) error {
	return &errkind.Fault{Op: "system: " + op, Reason: reason, Hint: hint, Class: errkind.ValueError}
}

// DescribeOptions say how to describe a slice that is not at hand. The zero value is what Cloud TPU
// gives by default.
type DescribeOptions struct {
	// Plugin is the path of libtpu. If empty, it is looked for as [pjrt.Find] says.
	Plugin string
	// PluginCheck says whose plugin files are trusted, and which hash the plugin must have, if any;
	// see [pjrt.Inspect].
	PluginCheck pjrt.OpenOptions
	// Slices is the number of equal slices joined by the data-center network; 0 is what the name
	// says, or 1.
	Slices int
	// Wrap says along which of x, y and z the interconnect closes to a ring. If nil, it is what
	// Cloud TPU builds: see [CloudWrap].
	Wrap *[3]bool
	// Options are handed to the plugin as they are, over those that follow from the fields above.
	Options map[string]any
	// KeepEnvironment leaves the process's environment as it is. Without it, Describe sets the
	// variables that libtpu reads on a machine without a TPU.
	KeepEnvironment bool
	// Getenv reads the environment for the plugin search; nil is os.Getenv.
	Getenv func(string) string
	// Logger receives a line when the slice is described, and one with the variables that Describe
	// has set; nil discards.
	Logger *slog.Logger
}

func getenvOf(o Options) func(string) string {
	if o.Getenv != nil {
		return o.Getenv
	}
	return os.Getenv
}
