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

// Host is what a process has to know to be a host. It is plain data, and can be written as JSON.
type Host struct {
	// Network and Address are the machine's, and Secret is its secret.
	Network, Address, Secret string
	// Run is the name of the run: the hosts that start together give the same.
	Run string
	// Process is the host's number, from 0, and Processes the number of hosts of the run, which
	// divides the number of devices.
	Process, Processes int
	// Plugin is the path of the CPU plugin; it is looked for if it is empty.
	Plugin string `json:",omitempty"`
}

// variable is the variable of the environment that makes a process a host.
const variable = "TPUSTRATEGY_HOST"

// Environ returns "NAME=value", by which [FromEnviron] of a child process finds the host.
func (h Host) Environ() (string, error) {
	text, err := json.Marshal(h)
	if err != nil {
		return "", &errkind.Fault{Op: "prochost: environment", Err: err, Class: errkind.ValueError}
	}
	return variable + "=" + string(text), nil
}

// FromEnviron reads the host that this process is to be. It reports false if it is to be none.
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

// Connect returns a function that opens the host's devices, for [system.Options]. It waits until
// all hosts of the run are there. Errors are [*MachineError], those of the machine, and
// [*simhost.MissingError], which names the hosts that did not come.
func (h Host) Connect() func(context.Context) (system.Runtime, error) {
	return func(ctx context.Context) (system.Runtime, error) {
		rt, err := h.connect(ctx)
		if err != nil {
			return nil, err
		}
		return rt, nil
	}
}

// maxWelcome bounds the body of the machine's first answer: there is none.
const maxWelcome = 0

func (h Host) connect(ctx context.Context) (_ *runtime, err error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, h.Network, h.Address)
	if err != nil {
		return nil, &MachineError{Address: h.Address, Op: "open", Reason: "it cannot be reached", Err: err}
	}
	defer func() {
		if err != nil {
			_ = conn.Close() // the error says more
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

// greet tells the machine who the host is.
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
