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

// runtime is what a host runs on. It implements [system.Runtime].
type runtime struct {
	link     *link
	base     *system.System // the host's own, for its buffers
	topology tpu.Topology
	platform string
	name     string
	ids      []int // of the host's devices
	open     atomic.Int64
}

var _ system.Runtime = (*runtime)(nil)

// fail is the error of an operation for a cause that does not name the operation itself.
func fail(op string, cause error) error {
	return &errkind.Fault{Op: "prochost: " + op, Err: cause}
}

func (r *runtime) PlatformName() string { return r.platform }

func (r *runtime) Devices() []*pjrt.Device { return r.base.Runtime().Devices() }

// Topology says where the devices are.
func (r *runtime) Topology() tpu.Topology { return r.topology }

func (r *runtime) Addressable(id int) bool { return slices.Contains(r.ids, id) }

// check refuses a device of another host, as a client does.
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

// Compile has the machine compile a program, as text: it does not trust bytecode of its hosts.
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

// Close ends the host. It fails while programs or buffers of it are open.
func (r *runtime) Close() error {
	if n := r.open.Load(); n > 0 {
		return &errkind.Fault{Op: "prochost: close", Reason: fmt.Sprintf("%s: %d executables are open", r.name, n),
			Hint: "close them first", Class: errkind.FailedPreconditionError}
	}
	if err := r.base.Close(); err != nil {
		return err
	}
	// It is gone anyway when the connection ends.
	_ = r.link.write(context.Background(), request{Op: opClose}, nil)
	r.link.end(errEnded)
	return nil
}

// errEnded is what a host gets that goes on after its Close.
var errEnded = errkind.New(errkind.FailedPreconditionError, "prochost: the host has ended")

// executable is a program as its host sees it.
type executable struct {
	runtime *runtime
	id      int
	devices []*pjrt.Device
	outputs []tensor
	scratch sync.Pool // of *[]byte
	closing sync.Once
}

func (e *executable) AddressableDevices() []*pjrt.Device { return slices.Clone(e.devices) }

// Close gives the program back. A machine that is gone has given it back already.
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
