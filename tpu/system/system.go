package system

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"time"

	"tpustrategy/pjrt"
	"tpustrategy/tpu"
)

// Options say which devices to open. The zero value opens the TPU of this
// machine.
type Options struct {
	// CPUDevices, if positive, opens the XLA CPU plugin with that many devices.
	CPUDevices int
	// MeshShape is the grid [x, y, z, core] that the CPU devices form, in the
	// order of their ids; its product is CPUDevices. If nil, it is
	// [CPUDevices/2, 1, 1, 2], or [CPUDevices, 1, 1, 1] for an odd number.
	MeshShape []int
	// Plugin is the path of the plugin's shared library. If empty, it is looked
	// for as [pjrt.Find] says.
	Plugin string
	// ClientOptions are handed to the plugin as they are.
	ClientOptions map[string]any
	// Getenv reads the environment for the plugin search; nil is os.Getenv.
	Getenv func(string) string
	// Logger receives a line for each step of the start-up; nil discards.
	Logger *slog.Logger
}

// System is an open set of devices. Its methods are safe for concurrent use.
type System struct {
	runtime  Runtime
	client   *pjrt.Client // nil over another runtime
	topology tpu.Topology
	process  int
	found    pjrt.Found
	byID     map[int]*pjrt.Device
}

// Open finds and opens the plugin, creates the client and reads the topology. It
// blocks until the devices are ready or ctx ends. Errors: [*pjrt.OpenError] when
// no plugin is found, [*pjrt.PluginError] when it cannot be opened, [*pjrt.Error]
// from the plugin itself, [*tpu.TopologyError] for a mesh that does not fit.
func Open(ctx context.Context, opts Options) (*System, error) {
	logger := opts.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	start := time.Now()
	if opts.CPUDevices < 0 {
		return nil, fmt.Errorf("system: %d CPU devices; give a positive number, or 0 for the TPU", opts.CPUDevices)
	}
	found, err := Find(opts)
	if err != nil {
		return nil, fmt.Errorf("system: %w", err)
	}
	logger.Info("plugin found", "path", found.Path, "source", found.Source)
	plugin, err := pjrt.Open(found.Path)
	if err != nil {
		return nil, fmt.Errorf("system: %w", err)
	}
	logger.Info("plugin open", "api", plugin.APIVersion().String(), "elapsed", time.Since(start))
	clientOptions := map[string]any{}
	for name, value := range opts.ClientOptions {
		clientOptions[name] = value
	}
	if opts.CPUDevices > 0 {
		clientOptions["cpu_device_count"] = int64(opts.CPUDevices)
	}
	client, err := plugin.NewClient(ctx, pjrt.ClientOptions{Options: clientOptions})
	if err != nil {
		return nil, fmt.Errorf("system: %w", err)
	}
	s := &System{runtime: clientRuntime{client}, client: client, found: found, byID: map[int]*pjrt.Device{}}
	for _, device := range client.Devices() {
		s.byID[device.ID()] = device
	}
	logger.Info("client ready", "platform", client.PlatformName(), "devices", len(s.byID), "elapsed", time.Since(start))
	if opts.CPUDevices > 0 {
		s.topology, err = tpu.LogicalTopology(tpu.LogicalOptions{Devices: opts.CPUDevices, MeshShape: opts.MeshShape})
	} else {
		var devices []*pjrt.DeviceDescription
		for _, device := range client.Devices() {
			devices = append(devices, &device.DeviceDescription)
		}
		s.topology, err = topologyOf("", devices)
	}
	if err == nil {
		err = s.checkDevices()
	}
	if err != nil {
		// The client has no children yet, so this Close cannot fail for them.
		_ = client.Close()
		return nil, fmt.Errorf("system: %w", err)
	}
	logger.Info("topology read", "topology", s.topology.String(), "elapsed", time.Since(start))
	return s, nil
}

// Find returns the plugin that Open would use.
func Find(opts Options) (pjrt.Found, error) {
	getenv := opts.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	kind := "tpu"
	if opts.CPUDevices > 0 {
		kind = "cpu"
	}
	// Without a home directory there is no installer's place to look in.
	cache, _ := os.UserCacheDir()
	return pjrt.Find(pjrt.FindOptions{
		Kind: kind, Path: opts.Plugin, Getenv: getenv, GOARCH: runtime.GOARCH, UserCacheDir: cache, Stat: os.Stat,
	})
}

// checkDevices holds the topology against the runtime: every device that the
// topology names must exist, and the addressable ones are one task's.
func (s *System) checkDevices() error {
	s.process = -1
	for task, ids := range s.topology.DeviceIDs() {
		for i, id := range ids {
			if s.byID[id] == nil {
				return fmt.Errorf("the topology names device %d, which the client does not have", id)
			}
			mine := s.runtime.Addressable(id)
			switch {
			case mine && s.process < 0 && i == 0:
				s.process = task
			case mine != (s.process == task):
				return fmt.Errorf("device %d of task %d: a process addresses the devices of one task, all of them", id, task)
			}
		}
	}
	if s.process < 0 {
		return fmt.Errorf("this process addresses no device of the topology %s", s.topology)
	}
	return nil
}

// Client returns the client, which stays the system's to close. It is nil if the
// system was made by [New].
func (s *System) Client() *pjrt.Client { return s.client }

// Topology returns where the devices are.
func (s *System) Topology() tpu.Topology { return s.topology }

// Platform returns the plugin's platform name: "cpu" or "tpu".
func (s *System) Platform() string { return s.runtime.PlatformName() }

// Plugin returns which plugin is open and where it was found.
func (s *System) Plugin() pjrt.Found { return s.found }

// Device returns the device of an id.
func (s *System) Device(id int) (*pjrt.Device, bool) {
	device, ok := s.byID[id]
	return device, ok
}

// Close closes the runtime. It fails, naming them, while strategies or buffers of
// it are open; a second Close returns the first one's result.
func (s *System) Close() error { return s.runtime.Close() }
