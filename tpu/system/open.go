package system

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"runtime"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// startResult is what a start-up has opened.
type startResult struct {
	runtime Runtime
	client  *pjrt.Client // nil without a plugin
	found   pjrt.Location
}

// Open opens the devices of this process, as TensorFlow's tf.tpu.experimental.initialize_tpu_system
// does. It starts up in steps, each of which is logged: it resolves the cluster and checks the
// environment, if the options name a cluster; finds and opens the plugin; creates the client, which
// on a slice waits for all processes; reads the topology; and holds the devices against the
// cluster.
//
// Open takes the place of TensorFlow's experimental_connect_to_cluster: every host runs the
// program. It blocks until the devices are ready or ctx ends. A plugin's call that does not return
// is left behind, so that Open ends by ctx's deadline all the same. A TPU that is in use by no
// process that is alive, as it is for half a minute after its process was killed, is tried again
// every second, for Options.BusyTimeout.
//
// A step that fails gives a [*StartError], which names the step and the processes that are missing,
// with one of these inside: an error of the resolver; [*clusterresolver.CheckError];
// [*pjrt.FindError] when no plugin is found; [ErrNoTPU] when the plugin is for a TPU that this
// machine does not have; [*LockedError] when another process holds the TPU; [*pjrt.PluginError]
// when the plugin cannot be opened; [*pjrt.Error] from the plugin itself; [tpu.ErrTopology] for
// a mesh that does not fit; [ErrCount]; the cause of ctx's end.
func Open(ctx context.Context, opts Options) (*System, error) {
	if opts.CPUDevices < 0 {
		return nil, optionError("open", fmt.Sprintf("%d CPU devices", opts.CPUDevices), "give a positive number, or 0 for the TPU")
	}
	if opts.CPUDevices > maxCPUDevices {
		return nil, optionError("open", fmt.Sprintf("%d CPU devices are more than %d, which take the memory of a machine", opts.CPUDevices, maxCPUDevices), "")
	}
	if opts.CPUSlices != 0 && opts.CPUDevices == 0 {
		return nil, optionError("open", "CPUSlices without CPUDevices", "the slices of a TPU are its own: leave it out")
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
func (s *starter) open(ctx context.Context) (o startResult, err error) {
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
	o.found, err = step(ctx, s, StepFind, nil, func(context.Context) (pjrt.Location, []any, error) {
		found, err := Find(s.opts)
		if err == nil {
			err = s.checkPresent(thisHost())
		}
		return found, []any{"path", found.Path, "source", found.Source}, err
	})
	if err != nil {
		return o, err
	}
	plugin, err := step(ctx, s, StepOpen, nil, func(ctx context.Context) (*pjrt.Plugin, []any, error) {
		if err := s.prepareTPU(thisHost()); err != nil {
			return nil, nil, err
		}
		plugin, err := unlessBusy(ctx, s, func() (*pjrt.Plugin, error) { return pjrt.Open(o.found.Path, s.opts.PluginCheck) })
		if err != nil {
			return nil, nil, err
		}
		return plugin, []any{"api", plugin.APIVersion().String()}, nil
	})
	if err != nil {
		return o, err
	}
	options := map[string]any{}
	maps.Copy(options, s.opts.ClientOptions)
	if s.opts.CPUDevices > 0 {
		options["cpu_device_count"] = int64(s.opts.CPUDevices)
	}
	o.client, err = step(ctx, s, StepClient, func(c *pjrt.Client) { _ = c.Close() }, func(ctx context.Context) (*pjrt.Client, []any, error) {
		client, err := unlessBusy(ctx, s, func() (*pjrt.Client, error) {
			return plugin.NewClient(ctx, pjrt.ClientOptions{Options: options, KeyValues: s.opts.KeyValues})
		})
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
		return tpu.LogicalTopology(tpu.LogicalOptions{Devices: s.opts.CPUDevices, MeshShape: s.opts.MeshShape, Slices: s.opts.CPUSlices})
	}
	if name := rt.PlatformName(); name != "tpu" && name != "cpu" { // such as "cuda", whose devices have no coordinates
		n := len(rt.Devices())
		mesh := s.opts.MeshShape
		if mesh == nil {
			mesh = []int{n, 1, 1, 1}
		}
		return tpu.LogicalTopology(tpu.LogicalOptions{Devices: n, MeshShape: mesh})
	}
	if s.opts.MeshShape != nil {
		return tpu.Topology{}, optionError("open", "MeshShape for devices that have places of their own", "leave it out")
	}
	return topologyOf("", descriptions(rt.Devices()))
}

// Find returns the plugin that Open would use.
func Find(opts Options) (pjrt.Location, error) {
	kind := "tpu"
	if opts.CPUDevices > 0 {
		kind = "cpu"
	}
	return findKind(kind, opts)
}

func findKind(kind string, opts Options) (pjrt.Location, error) {
	// Without a home directory there is no installer's place to look in.
	cache, _ := os.UserCacheDir()
	return pjrt.Find(pjrt.FindOptions{
		Kind: kind, Path: opts.Plugin, Getenv: getenvOf(opts), GOARCH: runtime.GOARCH, UserCacheDir: cache, Stat: os.Stat,
	})
}
