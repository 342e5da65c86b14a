package prochost

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// runtime implements [system.Runtime] on a host.
type runtime struct {
	link     *link
	base     *system.System // the host's own CPU client, for buffers
	topology tpu.Topology
	platform string
	name     string
	ids      []int // IDs of the host's devices
	open     atomic.Int64
}

var _ system.Runtime = (*runtime)(nil)

// fail adds the operation to an error that does not contain it.
func fail(op string, cause error) error {
	return &errkind.Fault{Op: "prochost: " + op, Err: cause}
}

func (r *runtime) PlatformName() string { return r.platform }

func (r *runtime) Devices() []*pjrt.Device { return r.base.Runtime().Devices() }

// Topology returns the topology of all devices of the machine.
func (r *runtime) Topology() tpu.Topology { return r.topology }

func (r *runtime) Addressable(id int) bool { return slices.Contains(r.ids, id) }

// check returns an error if d belongs to another host, like a PJRT client does.
func (r *runtime) check(d *pjrt.Device) error {
	if d != nil && !r.Addressable(d.ID()) {
		return fault("transfer", errkind.ValueError, "device %d is not of %s, which has devices %v", d.ID(), r.name, r.ids)
	}
	return r.link.failed()
}

func (r *runtime) BufferFromHost(ctx context.Context, data []byte, dtype pjrt.DType, dims []int,
	d *pjrt.Device) (*pjrt.Buffer, error) {
	if err := r.check(d); err != nil {
		return nil, err
	}
	return r.base.Runtime().BufferFromHost(ctx, data, dtype, dims, d)
}

func (r *runtime) RefillFromHost(ctx context.Context, into *pjrt.Buffer, data []byte, dtype pjrt.DType, dims []int,
	d *pjrt.Device) error {
	if err := r.check(d); err != nil {
		return err
	}
	return r.base.Runtime().RefillFromHost(ctx, into, data, dtype, dims, d)
}

// Compile compiles a program on the machine. It sends the program as text, because the machine
// rejects bytecode.
func (r *runtime) Compile(ctx context.Context, code pjrt.Program, opts pjrt.CompileOptions) (system.Executable, error) {
	p, err := newPrograms(code.Format, opts)
	if err != nil {
		return nil, err
	}
	a, _, err := r.link.call(ctx, request{Op: opCompile, Program: p}, code.Code)
	if err != nil {
		return nil, err
	}
	if a.Compiled == nil {
		return nil, fault("compile", errkind.InternalError, "the machine's answer has no program")
	}
	e := &executable{runtime: r, id: a.Compiled.Executable, outputs: a.Compiled.Outputs}
	for _, id := range a.Compiled.Devices {
		device, ok := r.base.Device(id)
		if !ok || !r.Addressable(id) {
			return nil, fault("compile", errkind.InternalError, "the machine's answer names device %d, which is not of %s", id,
				r.name)
		}
		e.devices = append(e.devices, device)
	}
	r.open.Add(1)
	return e, nil
}

// Close disconnects the host. It returns an error while programs or buffers of the host are open.
func (r *runtime) Close() error {
	if n := r.open.Load(); n > 0 {
		return &errkind.Fault{Op: "prochost: close", Reason: fmt.Sprintf("%s: %d executables are open", r.name, n),
			Hint: "close them first", Class: errkind.FailedPreconditionError}
	}
	if err := r.base.Close(); err != nil {
		return err
	}
	// The error can be ignored, because the connection is closed next.
	_ = r.link.write(context.Background(), request{Op: opClose}, nil)
	r.link.end(errEnded)
	return nil
}

// errEnded is the error of calls after Close.
var errEnded = errkind.New(errkind.FailedPreconditionError, "prochost: the host has ended")

// executable is a program that the machine has compiled for this host.
type executable struct {
	runtime *runtime
	id      int
	devices []*pjrt.Device
	outputs []tensor
	scratch sync.Pool // contains *[]byte
	closing sync.Once
}

func (e *executable) AddressableDevices() []*pjrt.Device { return slices.Clone(e.devices) }

// Close releases the program on the machine. If the connection is closed, the machine has already
// released the program.
func (e *executable) Close() error {
	e.closing.Do(func() {
		e.runtime.open.Add(-1)
		if e.runtime.link.failed() == nil {
			go func() {
				_, _, _ = e.runtime.link.call(context.Background(), request{Op: opRelease, Executable: e.id})
			}()
		}
	})
	return nil
}
