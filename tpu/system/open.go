package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// Options say which devices to open. The zero value opens the TPU of this machine.
type Options struct {
	// CPUDevices, if positive, opens the XLA CPU plugin with that many devices.
	CPUDevices int
	// MeshShape is the grid [x, y, z, core] that the CPU devices form, in the order of their ids;
	// its product is CPUDevices. If nil, it is [CPUDevices/2, 1, 1, 2], or [CPUDevices, 1, 1, 1]
	// for an odd number.
	MeshShape []int
	// Plugin is the path of the plugin's shared library. If empty, it is looked for as [pjrt.Find]
	// says, and one for a TPU is opened only where there are signs of a TPU.
	Plugin string
	// PluginCheck says whose plugin files are trusted, and which hash the plugin must have, if any;
	// see [pjrt.Inspect].
	PluginCheck pjrt.OpenOptions
	// ClientOptions are handed to the plugin as they are.
	ClientOptions map[string]any
	// Getenv reads the environment for the plugin search and the check of the cluster; nil is
	// os.Getenv.
	Getenv func(string) string

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

// opened is what a start-up has opened.
type opened struct {
	runtime Runtime
	client  *pjrt.Client // nil without a plugin
	found   pjrt.Found
}

// Open opens the devices of this process, as TensorFlow's tf.tpu.experimental.initialize_tpu_system
// does. It starts up in steps, each of which is logged: it resolves the cluster and checks the
// environment, if the options name a cluster; finds and opens the plugin; creates the client, which
// on a slice waits for all processes; reads the topology; and holds the devices against the
// cluster.
//
// Open blocks until the devices are ready or ctx ends. A plugin's call that does not return is left
// behind, so that Open ends by ctx's deadline all the same.
//
// A step that fails gives a [*StartError], which names the step and the processes that are missing,
// with one of these inside: an error of the resolver; [*clusterresolver.CheckError];
// [*pjrt.FindError] when no plugin is found; [ErrNoTPU] when the plugin is for a TPU that this
// machine does not have; [*LockedError] when another process holds the TPU; [*pjrt.PluginError]
// when the plugin cannot be opened; [*pjrt.Error] from the plugin itself; [*tpu.TopologyError] for
// a mesh that does not fit; [*CountError]; the cause of ctx's end.
func Open(ctx context.Context, opts Options) (*System, error) {
	if opts.CPUDevices < 0 {
		return nil, optionError("open", fmt.Sprintf("%d CPU devices", opts.CPUDevices), "give a positive number, or 0 for the TPU")
	}
	if opts.CPUDevices > maxCPUDevices {
		return nil, optionError("open", fmt.Sprintf("%d CPU devices are more than %d, which take the memory of a machine", opts.CPUDevices, maxCPUDevices), "")
	}
	s := &starter{opts: opts, logger: opts.Logger}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	if opts.Cluster != nil || opts.Resolver != nil {
		if err := s.know(ctx); err != nil {
			return nil, err
		}
	}
	o, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*System, error) {
		// The runtime has no children yet, so this Close cannot fail for them.
		return nil, errors.Join(err, o.runtime.Close())
	}
	topology, err := step(ctx, s, StepTopology, nil, func(context.Context) (tpu.Topology, []any, error) {
		t, err := s.topology(o.runtime)
		return t, []any{"topology", t.String()}, err
	})
	if err != nil {
		return fail(err)
	}
	sys, err := step(ctx, s, StepDevices, nil, func(context.Context) (*System, []any, error) {
		sys, err := newSystem(o.runtime, topology)
		if err == nil {
			err = s.checkCounts(sys)
		}
		if err != nil {
			return nil, nil, err
		}
		return sys, []any{"process", sys.Process(), "processes", sys.NumProcesses(), "devices", topology.NumDevices()}, nil
	})
	if err != nil {
		return fail(err)
	}
	sys.client, sys.found, sys.cluster = o.client, o.found, s.cluster
	return sys, nil
}

// know finds out about the cluster and checks the environment against it.
func (s *starter) know(ctx context.Context) (err error) {
	s.cluster, err = step(ctx, s, StepResolve, nil, func(ctx context.Context) (*clusterresolver.Cluster, []any, error) {
		c, err := s.resolve(ctx)
		if err != nil {
			return nil, nil, err
		}
		return c, []any{"source", c.Source, "task", c.Task.String(), "tasks", c.Spec.Len()}, nil
	})
	if err != nil {
		return err
	}
	_, err = step(ctx, s, StepEnvironment, nil, func(ctx context.Context) (int, []any, error) {
		findings, err := s.checkEnvironment(ctx)
		return len(findings), []any{"findings", len(findings)}, err
	})
	return err
}

// open opens the devices.
func (s *starter) open(ctx context.Context) (o opened, err error) {
	if s.opts.Connect != nil {
		o.runtime, err = step(ctx, s, StepClient, func(r Runtime) { _ = r.Close() }, func(ctx context.Context) (Runtime, []any, error) {
			r, err := s.opts.Connect(ctx)
			if err != nil {
				return nil, nil, err
			}
			return r, []any{"platform", r.PlatformName(), "devices", len(r.Devices())}, nil
		})
		return o, err
	}
	o.found, err = step(ctx, s, StepFind, nil, func(context.Context) (pjrt.Found, []any, error) {
		found, err := Find(s.opts)
		if err == nil {
			err = s.checkPresent(thisHost())
		}
		return found, []any{"path", found.Path, "source", found.Source}, err
	})
	if err != nil {
		return o, err
	}
	plugin, err := step(ctx, s, StepOpen, nil, func(context.Context) (*pjrt.Plugin, []any, error) {
		plugin, err := pjrt.Open(o.found.Path, s.opts.PluginCheck)
		if err != nil {
			return nil, nil, err
		}
		return plugin, []any{"api", plugin.APIVersion().String()}, nil
	})
	if err != nil {
		return o, err
	}
	options := map[string]any{}
	for name, value := range s.opts.ClientOptions {
		options[name] = value
	}
	if s.opts.CPUDevices > 0 {
		options["cpu_device_count"] = int64(s.opts.CPUDevices)
	}
	o.client, err = step(ctx, s, StepClient, func(c *pjrt.Client) { _ = c.Close() }, func(ctx context.Context) (*pjrt.Client, []any, error) {
		client, err := plugin.NewClient(ctx, pjrt.ClientOptions{Options: options})
		if err != nil {
			return nil, nil, err
		}
		return client, []any{"platform", client.PlatformName(), "devices", len(client.Devices())}, nil
	})
	o.runtime = clientRuntime{o.client}
	return o, err
}

// topology says where a runtime's devices are.
func (s *starter) topology(rt Runtime) (tpu.Topology, error) {
	if told, ok := rt.(interface{ Topology() tpu.Topology }); ok {
		return told.Topology(), nil
	}
	if s.opts.CPUDevices > 0 {
		return tpu.LogicalTopology(tpu.LogicalOptions{Devices: s.opts.CPUDevices, MeshShape: s.opts.MeshShape})
	}
	return topologyOf("", descriptions(rt.Devices()))
}
