package pjrt

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// ClientOptions configures [Plugin.NewClient]. The zero value selects the defaults of the plugin.
type ClientOptions struct {
	// Options are passed to the plugin. Values are string, int64, int, []int64, []int, float32 or
	// bool. The XLA CPU plugin has the option cpu_device_count, the number of devices, from 1 to 1024.
	Options map[string]any
	// KeyValues is the store through which the clients of several processes exchange data, such as
	// the addresses of their GPUs. The CUDA plugin requires a store, and the options num_nodes and
	// node_id, if there is more than one process. The CPU and TPU plugins do not use it.
	KeyValues KeyValueStore
}

// Client is a connection to the devices of one plugin. It is safe for concurrent use. The client owns
// its devices and memories. It cannot be closed while its buffers, executables or topologies are open.
type Client struct {
	*clientHandle
	plugin          *Plugin
	options         ClientOptions
	platformName    string
	platformVersion string
	processIndex    int
	devices         []*Device
	addressable     []*Device
	memories        []*Memory
	devicesByID     map[int]*Device
	devicesByHandle map[capi.Device]*Device

	closeMu  sync.Mutex
	closed   bool
	closeErr error
}

// maxCPUDevices is the maximum value of cpu_device_count. The plugin allocates threads for each
// device and does not check the number.
const maxCPUDevices = 1024

// NewClient opens the devices of the plugin. Opening a TPU takes seconds, and only one process at a
// time can open it. An option of an unsupported type is an error of kind ValueError. If ctx ends first,
// NewClient returns the cause of ctx, and closes the client as soon as the plugin has created it.
func (p *Plugin) NewClient(ctx context.Context, opts ClientOptions) (*Client, error) {
	if p.api == nil {
		return nil, zeroValueError("create client", "plugin", "Open")
	}
	options, err := namedValues(opts.Options)
	if err != nil {
		return nil, err
	}
	if v, ok := opts.Options["cpu_device_count"]; ok {
		i := slices.IndexFunc(options, func(n capi.NamedValue) bool { return n.Name == "cpu_device_count" })
		if n, ok := options[i].Value.(int64); !ok || n < 1 || n > maxCPUDevices {
			return nil, optionError("cpu_device_count", "", "%v (%T) is not an int64 from 1 to %d", v, v, maxCPUDevices)
		}
	}
	copied := ClientOptions{Options: cloneAttributes(opts.Options), KeyValues: opts.KeyValues}
	return callWithContext(ctx, "create client", func() (*Client, error) { return p.newClient(ctx, options, copied) },
		func(c *Client) { c.Close() }, nil)
}

func (p *Plugin) newClient(ctx context.Context, options []capi.NamedValue, opts ClientOptions) (*Client, error) {
	values, err := serveKeyValues(ctx, opts.KeyValues)
	if err != nil {
		return nil, err
	}
	handle, err := p.api.ClientCreate(options, values.requestPipe())
	values.detachContext()
	if err != nil {
		values.close()
		return nil, p.wrapError("create client", err)
	}
	c := &Client{clientHandle: &clientHandle{api: p.api, path: p.path, client: handle, keyValues: values}, plugin: p,
		options: opts}
	c.refs.Store(1)
	live.Add(live.Client, unsafe.Pointer(handle))
	if err := c.readProperties(); err != nil {
		c.Close()
		return nil, p.wrapError("read client", err)
	}
	runtime.AddCleanup(c, func(c *clientHandle) {
		if c.refs.Load() > 0 && !c.closing.Load() {
			live.MarkReclaimed(live.Client, unsafe.Pointer(c.client))
			c.unref()
		}
	}, c.clientHandle)
	return c, nil
}

func (c *Client) readProperties() (err error) {
	if c.platformName, err = c.api.ClientPlatformName(c.client); err != nil {
		return err
	}
	if c.platformVersion, err = c.api.ClientPlatformVersion(c.client); err != nil {
		return err
	}
	if c.processIndex, err = c.api.ClientProcessIndex(c.client); err != nil {
		return err
	}
	handles, err := c.api.ClientDevices(c.client)
	if err != nil {
		return err
	}
	memories, err := c.readMemories()
	if err != nil {
		return err
	}
	c.clientHandle.memories = memories
	c.devicesByID, c.devicesByHandle = map[int]*Device{}, map[capi.Device]*Device{}
	for _, h := range handles {
		d, err := c.readDevice(h, memories)
		if err != nil {
			return err
		}
		c.devices = append(c.devices, d)
		c.devicesByID[d.ID()], c.devicesByHandle[h] = d, d
	}
	local, err := c.api.ClientAddressableDevices(c.client)
	if err != nil {
		return err
	}
	for _, h := range local {
		if d := c.devicesByHandle[h]; d != nil {
			c.addressable = append(c.addressable, d)
		}
	}
	for _, m := range c.memories {
		for _, h := range m.handles {
			if d := c.devicesByHandle[h]; d != nil {
				m.devices = append(m.devices, d)
			}
		}
	}
	return nil
}

// Close closes the client. If buffers, executables or topologies of the client are open, or calls
// are running, Close has no effect and returns an [*InUseError] with their numbers. Close runs the
// garbage collector if it finds open objects, so that unreachable objects do not count.
//
// Close waits up to one second for compilations and executions whose caller has returned because
// its context ended. If such work is still running then, Close succeeds, and the plugin's client is
// destroyed when the work completes. A program can thus exit during a long compilation. After
// success, every further Close returns the same result.
func (c *Client) Close() error {
	if c == nil || c.clientHandle == nil {
		return nil
	}
	c.closeMu.Lock()
	defer c.closeMu.Unlock()
	if c.closed {
		return c.closeErr
	}
	if !c.isIdle() {
		return c.inUseError("close client")
	}
	if !c.waitForWork() {
		c.closeWhenIdle()
		c.closed = true
		return nil
	}
	err := c.clientHandle.close()
	if _, open := err.(*InUseError); open {
		return err
	}
	c.closed, c.closeErr = true, err
	return err
}

// Options returns a copy of the options that the client was created with.
func (c *Client) Options() ClientOptions {
	o := c.options
	o.Options = cloneAttributes(o.Options)
	return o
}

// Plugin returns the plugin of the client.
func (c *Client) Plugin() *Plugin { return c.plugin }

// PlatformName returns the name of the platform, such as "cpu" or "tpu".
func (c *Client) PlatformName() string { return c.platformName }

// PlatformVersion returns the plugin's description of its version.
func (c *Client) PlatformVersion() string { return c.platformVersion }

// ProcessIndex returns the index of this process among the processes of the slice.
func (c *Client) ProcessIndex() int { return c.processIndex }

// Devices returns the devices of all processes in the order of the plugin, in a new slice.
func (c *Client) Devices() []*Device { return slices.Clone(c.devices) }

// AddressableDevices returns the devices of this process in the order of the plugin.
func (c *Client) AddressableDevices() []*Device { return slices.Clone(c.addressable) }

// Memories returns the memories that this process can address.
func (c *Client) Memories() []*Memory { return slices.Clone(c.memories) }

// LookupDevice returns the device with a global id. If the device does not exist, the error matches
// [NotFound].
func (c *Client) LookupDevice(id int) (*Device, error) {
	if d := c.devicesByID[id]; d != nil {
		return d, nil
	}
	return nil, &errkind.Fault{Op: "pjrt: look up device", Subject: strconv.Itoa(id), Err: NotFound,
		Reason: fmt.Sprintf("none of the %d devices of the client has this id", len(c.devices)),
		Hint:   "Devices returns all devices"}
}

// readMemories reads the memories of the client, stores them in c, and returns them by handle. The
// map is nil if the plugin does not report memories.
func (c *Client) readMemories() (map[capi.Memory]*Memory, error) {
	handles, err := c.api.ClientMemories(c.client)
	if err != nil {
		if errors.Is(c.wrapError("", err), errors.ErrUnsupported) {
			return nil, nil
		}
		return nil, err
	}
	out := map[capi.Memory]*Memory{}
	for _, h := range handles {
		info, err := c.api.DescribeMemory(h)
		if err != nil {
			return nil, err
		}
		m := &Memory{core: c.clientHandle, handle: h, info: info, handles: info.Devices}
		c.memories, out[h] = append(c.memories, m), m
	}
	return out, nil
}

func (c *Client) readDevice(h capi.Device, memories map[capi.Memory]*Memory) (*Device, error) {
	description, err := c.api.DeviceDescription(h)
	if err != nil {
		return nil, err
	}
	info, err := c.api.Describe(description)
	if err != nil {
		return nil, err
	}
	d := &Device{DeviceDescription: DeviceDescription{info}, core: c.clientHandle, handle: h, localID: -1}
	if d.addressable, err = c.api.DeviceAddressable(h); err != nil {
		return nil, err
	}
	if !d.addressable {
		return d, nil
	}
	if id, err := c.api.DeviceLocalID(h); err == nil {
		d.localID = id
	}
	if list, err := c.api.DeviceMemories(h); err == nil {
		for _, m := range list {
			if memories[m] != nil {
				d.memories = append(d.memories, memories[m])
			}
		}
	}
	if m, err := c.api.DeviceDefaultMemory(h); err == nil {
		d.defaultMemory = memories[m]
	}
	return d, nil
}
