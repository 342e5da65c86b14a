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

// openedRuntime contains the runtime that openRuntime has opened, and how it was opened.
type openedRuntime struct {
	runtime  Runtime
	client   *pjrt.Client // nil without a plugin
	location pjrt.Location
}

// Open opens the devices of this process. It corresponds to TensorFlow's
// tf.tpu.experimental.initialize_tpu_system. It also replaces experimental_connect_to_cluster,
// because the program runs on every host. Open performs and logs the following steps:
//
//  1. If there is a cluster or a resolver, resolve the cluster and check the environment.
//  2. Find and open the plugin.
//  3. Create the client. On a slice with several hosts, the client waits for all processes.
//  4. Read the topology, and compare the devices with the cluster.
//
// Open blocks until the devices are ready or ctx is done. If a call into the plugin does not
// return, Open abandons the call when ctx is done. If the TPU is in use but no running process uses
// it, Open retries every second for up to Options.BusyTimeout. A TPU is in this state for about
// half a minute after its process was killed.
//
// A failed step returns a [*StartError] with the step and the processes that are missing. It wraps
// an error of the resolver; a [*clusterresolver.CheckError]; a [*pjrt.FindError] if no plugin is
// found; [ErrNoTPU] if the plugin needs a TPU and the host has none; a [*LockedError] if another
// process is using the TPU; a [*pjrt.PluginError] if the plugin cannot be opened; a [*pjrt.Error]
// of the plugin; an error that matches [tpu.ErrTopology] for an invalid mesh; an error that matches
// [ErrCount]; or the cause of ctx.
func Open(ctx context.Context, opts Options) (*System, error) {
	if opts.CPUDevices < 0 {
		return nil, optionError("open", fmt.Sprintf("%d CPU devices", opts.CPUDevices),
			"use a positive number, or 0 for the TPU")
	}
	if opts.CPUDevices > maxCPUDevices {
		return nil, optionError("open", fmt.Sprintf("%d CPU devices are more than %d", opts.CPUDevices, maxCPUDevices),
			"use fewer devices")
	}
	if opts.CPUSlices != 0 && opts.CPUDevices == 0 {
		return nil, optionError("open", "CPUSlices is set without CPUDevices",
			"the slices of a TPU cannot be changed; do not set CPUSlices")
	}
	s := &starter{opts: opts, logger: opts.Logger}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	if opts.Cluster != nil || opts.Resolver != nil {
		if err := s.discoverCluster(ctx); err != nil {
			return nil, err
		}
	}
	o, err := s.openRuntime(ctx)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*System, error) {
		return nil, errors.Join(err, o.runtime.Close())
	}
	topology, err := runStep(ctx, s, StepTopology, nil, func(context.Context) (tpu.Topology, []any, error) {
		t, err := s.readTopology(o.runtime)
		return t, []any{"topology", t.String()}, err
	})
	if err != nil {
		return fail(err)
	}
	sys, err := runStep(ctx, s, StepDevices, nil, func(context.Context) (*System, []any, error) {
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
	sys.client, sys.location, sys.cluster = o.client, o.location, s.cluster
	return sys, nil
}

// discoverCluster resolves the cluster and checks the environment.
func (s *starter) discoverCluster(ctx context.Context) (err error) {
	s.cluster, err = runStep(ctx, s, StepResolve, nil, func(ctx context.Context) (*clusterresolver.Cluster, []any, error) {
		c, err := s.resolveCluster(ctx)
		if err != nil {
			return nil, nil, err
		}
		return c, []any{"source", c.Source, "task", c.Task.String(), "tasks", c.Spec.Len()}, nil
	})
	if err != nil {
		return err
	}
	_, err = runStep(ctx, s, StepEnvironment, nil, func(ctx context.Context) (int, []any, error) {
		findings, err := s.checkEnvironment(ctx)
		return len(findings), []any{"findings", len(findings)}, err
	})
	return err
}

// openRuntime opens the devices with the plugin or with Options.Connect.
func (s *starter) openRuntime(ctx context.Context) (o openedRuntime, err error) {
	if s.opts.Connect != nil {
		o.runtime, err = runStep(ctx, s, StepClient, func(r Runtime) { _ = r.Close() }, func(ctx context.Context) (Runtime,
			[]any, error) {
			r, err := s.opts.Connect(ctx)
			if err != nil {
				return nil, nil, err
			}
			return r, []any{"platform", r.PlatformName(), "devices", len(r.Devices())}, nil
		})
		return o, err
	}
	o.location, err = runStep(ctx, s, StepFind, nil, func(context.Context) (pjrt.Location, []any, error) {
		found, err := FindPlugin(s.opts)
		if err == nil {
			err = s.checkTPUPresent(localHost())
		}
		return found, []any{"path", found.Path, "source", found.Source}, err
	})
	if err != nil {
		return o, err
	}
	plugin, err := runStep(ctx, s, StepOpen, nil, func(ctx context.Context) (*pjrt.Plugin, []any, error) {
		if err := s.prepareTPUHost(localHost()); err != nil {
			return nil, nil, err
		}
		plugin, err := retryWhileBusy(ctx, s, func() (*pjrt.Plugin, error) {
			return pjrt.Open(o.location.Path, s.opts.PluginCheck)
		})
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
	o.client, err = runStep(ctx, s, StepClient, func(c *pjrt.Client) { _ = c.Close() },
		func(ctx context.Context) (*pjrt.Client, []any, error) {
			client, err := retryWhileBusy(ctx, s, func() (*pjrt.Client, error) {
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

// readTopology returns the topology of the runtime's devices.
func (s *starter) readTopology(rt Runtime) (tpu.Topology, error) {
	if source, ok := rt.(interface{ Topology() tpu.Topology }); ok {
		return source.Topology(), nil
	}
	if s.opts.CPUDevices > 0 {
		return tpu.LogicalTopology(tpu.LogicalOptions{Devices: s.opts.CPUDevices, MeshShape: s.opts.MeshShape,
			Slices: s.opts.CPUSlices})
	}
	if name := rt.PlatformName(); name != "tpu" && name != "cpu" { // for example "cuda"; the devices have no coordinates
		n := len(rt.Devices())
		mesh := s.opts.MeshShape
		if mesh == nil {
			mesh = []int{n, 1, 1, 1}
		}
		return tpu.LogicalTopology(tpu.LogicalOptions{Devices: n, MeshShape: mesh})
	}
	if s.opts.MeshShape != nil {
		return tpu.Topology{}, optionError("open", "MeshShape is set, but the devices have coordinates",
			"do not set MeshShape")
	}
	return topologyFromDevices("", deviceDescriptions(rt.Devices()))
}

// FindPlugin returns the location of the plugin that Open would open with these options.
func FindPlugin(opts Options) (pjrt.Location, error) {
	kind := "tpu"
	if opts.CPUDevices > 0 {
		kind = "cpu"
	}
	return findPluginKind(kind, opts)
}

func findPluginKind(kind string, opts Options) (pjrt.Location, error) {
	cache, _ := os.UserCacheDir() // "" if there is no home directory
	return pjrt.FindPlugin(pjrt.FindOptions{
		Kind: kind, Path: opts.Plugin, Getenv: getenvOrDefault(opts), GOARCH: runtime.GOARCH, UserCacheDir: cache,
		Stat: os.Stat,
	})
}
