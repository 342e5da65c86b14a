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

// ClientOptions configure a client. The zero value asks for the plugin's defaults.
type ClientOptions struct {
	// Options go to the plugin as they are: string, int64, int, []int64, []int, float32 or bool
	// values. The XLA CPU plugin knows cpu_device_count, the number of devices, 1 to 1024.
	Options map[string]any
	// KeyValues is what the plugin's clients of several processes tell each other by, such as the
	// addresses of their GPUs. The plugin for CUDA needs it where there is more than one process,
	// beside the options num_nodes and node_id; those for CPUs and TPUs do not ask. nil is none.
	KeyValues KeyValueStore
}

// Client is a connection of one plugin to its devices. It is safe for concurrent use. It owns its
// devices and memories; buffers, executables and topologies made from it keep it open.
type Client struct {
	*core
	plugin          *Plugin
	options         ClientOptions
	platformName    string
	platformVersion string
	processIndex    int
	devices         []*Device
	addressable     []*Device
	memories        []*Memory
	byID            map[int]*Device
	byHandle        map[capi.Device]*Device

	closing sync.Mutex
	closed  bool
	result  error
}

// maxCPUDevices bounds cpu_device_count: the plugin allocates threads for each device and does not
// check the number itself.
const maxCPUDevices = 1024

// NewClient opens the plugin's devices. For a TPU this takes seconds, and one process at a time can
// hold them. Options of a wrong type give an error of kind ValueError before the plugin is called. If ctx
// ends first, NewClient returns its cause, and closes the client as soon as the plugin has made it.
func (p *Plugin) NewClient(ctx context.Context, o ClientOptions) (*Client, error) {
	if p.api == nil {
		return nil, errNotMade("create client", "plugin", "Open")
	}
	options, err := namedValues(o.Options)
	if err != nil {
		return nil, err
	}
	if v, ok := o.Options["cpu_device_count"]; ok {
		i := slices.IndexFunc(options, func(n capi.NamedValue) bool { return n.Name == "cpu_device_count" })
		if n, ok := options[i].Value.(int64); !ok || n < 1 || n > maxCPUDevices {
			return nil, option("cpu_device_count", "", "%v (%T) is not an int64 from 1 to %d", v, v, maxCPUDevices)
		}
	}
	given := ClientOptions{Options: cloneAttributes(o.Options), KeyValues: o.KeyValues}
	return await(ctx, "create client", func() (*Client, error) { return p.newClient(ctx, options, given) }, func(c *Client) { c.Close() }, nil)
}

func (p *Plugin) newClient(ctx context.Context, options []capi.NamedValue, given ClientOptions) (*Client, error) {
	values, err := serveKeyValues(ctx, given.KeyValues)
	if err != nil {
		return nil, err
	}
	handle, err := p.api.ClientCreate(options, values.c())
	values.created()
	if err != nil {
		values.close()
		return nil, p.wrap("create client", err)
	}
	c := &Client{core: &core{api: p.api, path: p.path, c: handle, values: values}, plugin: p, options: given}
	c.refs.Store(1)
	live.Add(live.Client, unsafe.Pointer(handle))
	if err := c.read(); err != nil {
		c.Close()
		return nil, p.wrap("read client", err)
	}
	runtime.AddCleanup(c, func(c *core) {
		if c.refs.Load() > 0 && !c.closing.Load() {
			live.Reclaimed(live.Client, unsafe.Pointer(c.c))
			c.drop()
		}
	}, c.core)
	return c, nil
}

// read fills in all that a client says about itself, once.
func (c *Client) read() (err error) {
	if c.platformName, err = c.api.ClientPlatformName(c.c); err != nil {
		return err
	}
	if c.platformVersion, err = c.api.ClientPlatformVersion(c.c); err != nil {
		return err
	}
	if c.processIndex, err = c.api.ClientProcessIndex(c.c); err != nil {
		return err
	}
	handles, err := c.api.ClientDevices(c.c)
	if err != nil {
		return err
	}
	memories, err := c.readMemories()
	if err != nil {
		return err
	}
	c.core.memories = memories
	c.byID, c.byHandle = map[int]*Device{}, map[capi.Device]*Device{}
	for _, h := range handles {
		d, err := c.readDevice(h, memories)
		if err != nil {
			return err
		}
		c.devices = append(c.devices, d)
		c.byID[d.ID()], c.byHandle[h] = d, d
	}
	local, err := c.api.ClientAddressableDevices(c.c)
	if err != nil {
		return err
	}
	for _, h := range local {
		if d := c.byHandle[h]; d != nil {
			c.addressable = append(c.addressable, d)
		}
	}
	for _, m := range c.memories {
		for _, h := range m.handles {
			if d := c.byHandle[h]; d != nil {
				m.devices = append(m.devices, d)
			}
		}
	}
	return nil
}

// Close ends the client. While buffers, executables or topologies of the client are open, or other
// goroutines are in its calls, Close does nothing and returns an [*OpenError] that counts them;
// close them and call it again. Objects that nobody holds any more are closed by the garbage
// collector, which Close runs if it finds any open.
//
// Close waits a second at most for compilations and executions whose caller has left because its
// context ended. What still goes on then is left behind: Close succeeds, and the plugin's client is
// destroyed when the last of that work ends. So a program can end in the middle of a compilation
// that takes minutes. After success, a further Close returns the same result.
func (c *Client) Close() error {
	if c == nil || c.core == nil {
		return nil
	}
	c.closing.Lock()
	defer c.closing.Unlock()
	if c.closed {
		return c.result
	}
	if !c.settled() {
		return c.openError("close client")
	}
	if !c.worked() {
		c.leave()
		c.closed = true
		return nil
	}
	err := c.core.close()
	if _, open := err.(*OpenError); open {
		return err
	}
	c.closed, c.result = true, err
	return err
}

// Options returns the options that the client was made with. They are the caller's.
func (c *Client) Options() ClientOptions {
	o := c.options
	o.Options = cloneAttributes(o.Options)
	return o
}

// Plugin returns the plugin that the client was made from.
func (c *Client) Plugin() *Plugin { return c.plugin }

// PlatformName returns the plugin's name of the platform, such as "cpu" or "tpu".
func (c *Client) PlatformName() string { return c.platformName }

// PlatformVersion returns the plugin's own text of its version.
func (c *Client) PlatformVersion() string { return c.platformVersion }

// ProcessIndex returns the number of this process among the processes of a slice.
func (c *Client) ProcessIndex() int { return c.processIndex }

// Devices returns all devices, of all processes, in the plugin's order. The slice is the caller's;
// the devices are the client's.
func (c *Client) Devices() []*Device { return slices.Clone(c.devices) }

// AddressableDevices returns the devices of this process, in the plugin's order.
func (c *Client) AddressableDevices() []*Device { return slices.Clone(c.addressable) }

// Memories returns the memories that this process can address.
func (c *Client) Memories() []*Memory { return slices.Clone(c.memories) }

// LookupDevice returns the device with a global id. An id that no device has gives an error that
// matches [NotFound].
func (c *Client) LookupDevice(id int) (*Device, error) {
	if d := c.byID[id]; d != nil {
		return d, nil
	}
	return nil, &errkind.Fault{Op: "pjrt: look up device", Subject: strconv.Itoa(id), Reason: fmt.Sprintf("it is none of the client's %d", len(c.devices)), Err: NotFound, Hint: "Devices lists them"}
}

// readMemories reads the client's memories, by handle.
func (c *Client) readMemories() (map[capi.Memory]*Memory, error) {
	handles, err := c.api.ClientMemories(c.c)
	if err != nil {
		if errors.Is(c.wrap("", err), errors.ErrUnsupported) {
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
		m := &Memory{core: c.core, handle: h, info: info, handles: info.Devices}
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
	d := &Device{DeviceDescription: DeviceDescription{info}, core: c.core, handle: h, localID: -1}
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
