package pjrt

import (
	"bytes"
	"context"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/live"
)

// Topology describes the devices of a slice, which do not have to be available. It is safe for
// concurrent use. The caller must close the Topology. Afterwards, Serialize, Fingerprint and
// Compile return errors, and the other methods still work.
type Topology struct {
	*topologyHandle
	name            string
	platformName    string
	platformVersion string
	attributes      map[string]any
	options         map[string]any
	devices         []*DeviceDescription
}

// topologyHandle owns the C object of a Topology. The handle does not refer to the Topology, so
// that the garbage collector can detect that the Topology is unreachable.
type topologyHandle struct {
	handle
	api      *capi.API
	topology capi.Topology
}

func (h *topologyHandle) withHandle(op string, f func() error) error {
	if h == nil {
		return zeroValueError(op, "topology", "NewTopology")
	}
	return h.handle.withHandle(op, f)
}

// NewTopology returns the topology with the given name, such as "v5e:4x4" for libtpu. The plugin
// defines the names and options. No device is opened. Creating the topology of a large slice takes
// about a second. If ctx ends first, NewTopology returns the cause of ctx.
func (p *Plugin) NewTopology(ctx context.Context, name string, options map[string]any) (*Topology, error) {
	if p.api == nil {
		return nil, zeroValueError("create topology", "plugin", "Open")
	}
	values, err := namedValues(options)
	if err != nil {
		return nil, err
	}
	if err := checkTopologyName(name, options); err != nil {
		return nil, err
	}
	return callWithContext(ctx, "create topology", func() (*Topology, error) {
		t, err := p.api.TopologyCreate(name, values)
		if err != nil {
			return nil, p.wrapError("create topology", err)
		}
		described, err := newTopology(p.api, p.path, nil, t, name)
		if err == nil {
			described.options = cloneAttributes(options)
		}
		return described, err
	}, func(t *Topology) { t.Close() }, nil)
}

// chipLayoutPattern matches the number of chips along each axis in a name such as "v5e:4x4".
var chipLayoutPattern = regexp.MustCompile(`[:=_]([0-9]+(?:x[0-9]+)*)`)

// checkTopologyName rejects names that would crash libtpu: names with an axis of 0 chips, which
// cause a division by zero, and names with so many chips that libtpu would run out of memory.
func checkTopologyName(name string, options map[string]any) error {
	slices := 1
	switch n := options["num_slices"].(type) {
	case int:
		slices = n
	case int64:
		slices = int(n)
	}
	if slices < 1 || slices > maxDevices {
		return optionError("num_slices", "", "%d is not between 1 and %d", slices, maxDevices)
	}
	m := chipLayoutPattern.FindStringSubmatch(name)
	if m == nil {
		return nil
	}
	chips := slices
	for _, axis := range strings.Split(m[1], "x") {
		n, err := strconv.Atoi(axis)
		if err != nil || n < 1 || n > maxDevices || chips > maxDevices/n {
			return optionError("name", "", "%q: axis %q is 0, or the slice has more than %d chips", name, axis,
				maxDevices)
		}
		chips *= n
	}
	return nil
}

// LoadTopology decodes the result of [Topology.Serialize]. It requires PJRT 0.75.
func (p *Plugin) LoadTopology(ctx context.Context, serialized []byte) (*Topology, error) {
	if p.api == nil {
		return nil, zeroValueError("load topology", "plugin", "Open")
	}
	if ctx.Done() != nil {
		serialized = bytes.Clone(serialized)
	}
	return callWithContext(ctx, "load topology", func() (*Topology, error) {
		t, err := p.api.TopologyDeserialize(serialized)
		if err != nil {
			return nil, p.wrapError("load topology", err)
		}
		return newTopology(p.api, p.path, nil, t, "")
	}, func(t *Topology) { t.Close() }, nil)
}

// Topology returns the topology of the client's devices. The client cannot be closed while the
// Topology is open.
func (c *Client) Topology() (*Topology, error) {
	if err := c.acquire(dependentTopology); err != nil {
		return nil, opError("client topology", "", err)
	}
	t, err := c.api.ClientTopology(c.client)
	if err != nil {
		c.release(dependentTopology)
		return nil, c.wrapError("client topology", err)
	}
	return newTopology(c.api, c.path, c.clientHandle, t, c.platformName)
}

// newTopology returns a Topology that owns t. If t belongs to a client, c is that client, and
// closing the Topology releases c instead of destroying t.
func newTopology(api *capi.API, path string, c *clientHandle, t capi.Topology, name string) (*Topology, error) {
	h := &topologyHandle{handle: handle{kind: live.Topology, path: path}, api: api, topology: t}
	h.free = func() error {
		if c != nil { // the client destroys t
			c.release(dependentTopology)
			return nil
		}
		return api.TopologyDestroy(t)
	}
	described := &Topology{topologyHandle: h, name: name}
	live.Add(live.Topology, unsafe.Pointer(&h.handle))
	if err := described.readProperties(); err != nil {
		described.Close()
		return nil, wrapError("read topology", path, err)
	}
	runtime.AddCleanup(described, (*handle).reclaim, &h.handle)
	return described, nil
}

func (t *Topology) readProperties() (err error) {
	if t.platformName, err = t.api.TopologyPlatformName(t.topology); err != nil {
		return err
	}
	if t.platformVersion, err = t.api.TopologyPlatformVersion(t.topology); err != nil {
		return err
	}
	if t.attributes, err = t.api.TopologyAttributes(t.topology); err != nil {
		return err
	}
	handles, err := t.api.TopologyDescriptions(t.topology)
	if err != nil {
		return err
	}
	for _, h := range handles {
		info, err := t.api.Describe(h)
		if err != nil {
			return err
		}
		t.devices = append(t.devices, &DeviceDescription{info})
	}
	return nil
}

// Name returns the name that was passed to [Plugin.NewTopology]. For the topology of a client, it
// is the name of the platform. For a topology from [Plugin.LoadTopology], it is empty.
func (t *Topology) Name() string { return t.name }

// Options returns a copy of the options that were passed to [Plugin.NewTopology]. ok is false if
// the topology was not created by NewTopology.
func (t *Topology) Options() (options map[string]any, ok bool) {
	return cloneAttributes(t.options), t.options != nil
}

// PluginPath returns the path of the plugin that describes the topology.
func (t *Topology) PluginPath() string {
	if t.topologyHandle == nil {
		return ""
	}
	return t.path
}

// PlatformName returns the name of the platform, such as "tpu".
func (t *Topology) PlatformName() string { return t.platformName }

// PlatformVersion returns the plugin's description of its version.
func (t *Topology) PlatformVersion() string { return t.platformVersion }

// Attributes returns a copy of the plugin's attributes of the slice, such as wrap and twist.
func (t *Topology) Attributes() map[string]any { return cloneAttributes(t.attributes) }

// Devices returns the devices of the slice in the order of the plugin.
func (t *Topology) Devices() []*DeviceDescription { return slices.Clone(t.devices) }

// Serialize encodes the topology for [Plugin.LoadTopology].
func (t *Topology) Serialize() (b []byte, err error) {
	err = t.withHandle("serialize topology", func() error { b, err = t.api.TopologySerialize(t.topology); return err })
	return b, err
}

// Fingerprint returns a number that is equal for equal topologies. It requires PJRT 0.101.
func (t *Topology) Fingerprint() (n uint64, err error) {
	err = t.withHandle("topology fingerprint", func() error { n, err = t.api.TopologyFingerprint(t.topology); return err })
	return n, err
}

// Close frees the topology when no call uses it any more. A second Close returns the result of the
// first.
func (t *Topology) Close() error {
	if t == nil || t.topologyHandle == nil {
		return nil
	}
	return t.closeOnce("close topology")
}

// Compile compiles a program for the devices of the topology, which do not have to be available.
// The result provides the memory and the cost of the program. It can be serialized, and loaded on
// such devices by [Client.Load]. Errors and ctx are as for [Client.Compile].
func (t *Topology) Compile(ctx context.Context, program Program, opts CompileOptions) (*Executable, error) {
	const op = "compile"
	if t.topologyHandle == nil {
		return nil, zeroValueError(op, "topology", "NewTopology")
	}
	program, err := program.withDefaultFormat()
	if err != nil {
		return nil, err
	}
	ids := make(map[int]bool, len(t.devices))
	for _, d := range t.devices {
		ids[d.ID()] = true
	}
	options, err := opts.encode(len(t.devices), func(id int) bool { return ids[id] })
	if err != nil {
		return nil, err
	}
	if !t.acquire() {
		return nil, opError(op, "", closedError("topology"))
	}
	code := program.Code
	if ctx.Done() != nil {
		code = bytes.Clone(code)
	}
	return callWithContext(ctx, op, func() (*Executable, error) {
		x, err := t.api.Compile(t.topology, code, program.Format, options)
		if err != nil {
			return nil, wrapError(op, t.path, err)
		}
		return newExecutable(t.api, t.path, nil, x), nil
	}, func(e *Executable) { e.Close() }, t.release)
}
