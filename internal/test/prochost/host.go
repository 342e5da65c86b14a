package prochost

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/handshake"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Host is the configuration of a host process. It contains only plain data and can be encoded as
// JSON.
type Host struct {
	// Network and Address are the address of the machine. Secret is the machine's secret.
	Network, Address, Secret string
	// Run is the name of the run. It is equal for all hosts that start together.
	Run string
	// Process is the number of this host, from 0. Processes is the number of hosts of the run. It
	// must divide the number of devices.
	Process, Processes int
	// Plugin is the path of the CPU plugin. If it is empty, the plugin is searched for.
	Plugin string `json:",omitempty"`
}

// variable is the environment variable that contains the configuration of a host process.
const variable = "TPUSTRATEGY_HOST"

// Environ encodes h as an environment entry "NAME=value" for a child process. [FromEnviron] decodes
// it.
func (h Host) Environ() (string, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return "", &errkind.Fault{Op: "prochost: environment", Err: err, Class: errkind.ValueError}
	}
	return variable + "=" + string(text), nil
}

// FromEnviron decodes the configuration that [Host.Environ] encoded. It reports false if the
// environment does not contain one, so that this process is not a host.
func FromEnviron(getenv func(string) string) (h Host, here bool, err error) {
	text := getenv(variable)
	if text == "" {
		return h, false, nil
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return h, true, &errkind.Fault{Op: "prochost: environment", Subject: variable, Err: err,
			Hint: "have Host.Environ write it", Class: errkind.ValueError}
	}
	return h, true, nil
}

// Connect returns a function for [system.Options] that opens the host's devices. The function waits
// until all hosts of the run have connected. It returns a [*MachineError], an error of the machine,
// or a [*simhost.MissingError] that names the hosts that did not connect.
func (h Host) Connect() func(context.Context) (system.Runtime, error) {
	return func(ctx context.Context) (system.Runtime, error) {
		rt, err := h.connect(ctx)
		if err != nil {
			return nil, err
		}
		return rt, nil
	}
}

// maxWelcome is the maximum size of the body of the machine's first reply. This reply has no body.
const maxWelcome = 0

func (h Host) connect(ctx context.Context) (_ *runtime, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, h.Network, h.Address)
	if err != nil {
		return nil, &MachineError{Address: h.Address, Op: "open", Reason: "it cannot be reached", Err: err}
	}
	defer func() {
		if err != nil {
			_ = conn.Close() // the earlier error is more specific
		}
	}()
	w, err := h.greet(ctx, conn)
	if err != nil {
		return nil, err
	}
	topology, err := tpu.LogicalTopology(tpu.LogicalOptions{Devices: w.Devices, MeshShape: w.MeshShape,
		Tasks: h.Processes})
	if err != nil {
		return nil, &errkind.Fault{Op: "prochost: open", Err: err}
	}
	base, err := system.Open(ctx, system.Options{CPUDevices: w.Devices, Plugin: h.Plugin})
	if err != nil {
		return nil, err
	}
	rt := &runtime{link: newLink(conn, h, w), base: base, topology: topology, platform: w.Platform, name: w.Name,
		ids: topology.DeviceIDs()[h.Process]}
	if _, _, err := rt.link.call(ctx, request{Op: opJoin}); err != nil {
		rt.link.end(err)
		return nil, errors.Join(err, base.Close())
	}
	return rt, nil
}

// greet sends the host's identity to the machine and returns the reply.
func (h Host) greet(ctx context.Context, conn net.Conn) (*welcome, error) {
	deadline := time.Now().Add(greeting)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	failed := func(reason string, err error) error {
		return &MachineError{Address: h.Address, Op: "open", Reason: reason, Err: err}
	}
	if err := handshake.Authenticate(ctx, conn, h.Secret); err != nil {
		return nil, failed("it does not let this host in", err)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return nil, failed("", err)
	}
	q := request{Op: opHello, Hello: &hello{Run: h.Run, Process: h.Process, Processes: h.Processes}}
	if err := writeFrame(conn, q); err != nil {
		return nil, failed("it takes no greeting", err)
	}
	var a reply
	if _, err := readFrame(conn, &a, maxWelcome); err != nil {
		return nil, failed("it does not answer", err)
	}
	switch {
	case a.Error != nil:
		return nil, a.Error.err(ctx, "open")
	case a.Welcome == nil || a.Welcome.Devices < 1:
		return nil, failed("it is no machine", nil)
	}
	return a.Welcome, conn.SetDeadline(time.Time{})
}
