package simhost

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

// errEnded is matched by the errors of a process after Close or Kill.
var errEnded = errkind.New(errkind.FailedPreconditionError, "the process has ended")

// process is a simulated process of a cluster. It implements [system.Runtime].
type process struct {
	cluster      *Cluster
	index        int
	ids          []int // ids of its devices
	openPrograms atomic.Int64
	launchSlot   chan struct{} // held by the running launch

	ended       bool // guarded by cluster.mu
	numLaunches int  // guarded by cluster.mu
}

var _ system.Runtime = (*process)(nil)

func newProcess(c *Cluster, index int) *process {
	return &process{cluster: c, index: index, ids: c.topology.DeviceIDs()[index], launchSlot: make(chan struct{}, 1)}
}

func (p *process) name() string { return p.cluster.opts.Names[p.index] }

func (p *process) endedError() error {
	return &errkind.Fault{Op: "simhost", Reason: p.name(), Err: errEnded}
}

func (p *process) PlatformName() string { return p.cluster.base.Platform() }

func (p *process) Devices() []*pjrt.Device { return p.cluster.base.Runtime().Devices() }

// Topology returns the topology of the cluster.
func (p *process) Topology() tpu.Topology { return p.cluster.topology }

func (p *process) Addressable(id int) bool { return slices.Contains(p.ids, id) }

// checkDevice returns an error if the device belongs to another process or this process has ended.
func (p *process) checkDevice(d *pjrt.Device) error {
	if d != nil && !p.Addressable(d.ID()) {
		return fault("transfer", "device %d does not belong to %s, which has devices %v", d.ID(), p.name(), p.ids)
	}
	return p.checkNotEnded()
}

func (p *process) checkNotEnded() error {
	p.cluster.mu.Lock()
	defer p.cluster.mu.Unlock()
	if p.ended {
		return p.endedError()
	}
	return nil
}

func (p *process) BufferFromHost(ctx context.Context, data []byte, dtype pjrt.DType, dims []int,
	d *pjrt.Device) (*pjrt.Buffer, error) {
	if err := p.checkDevice(d); err != nil {
		return nil, err
	}
	return p.cluster.base.Runtime().BufferFromHost(ctx, data, dtype, dims, d)
}

func (p *process) RefillFromHost(ctx context.Context, dst *pjrt.Buffer, data []byte, dtype pjrt.DType, dims []int,
	d *pjrt.Device) error {
	if err := p.checkDevice(d); err != nil {
		return err
	}
	return p.cluster.base.Runtime().RefillFromHost(ctx, dst, data, dtype, dims, d)
}

// Compile compiles a program for devices of one or several processes. At least one device must
// belong to this process.
func (p *process) Compile(ctx context.Context, code pjrt.Program, opts pjrt.CompileOptions) (system.Executable, error) {
	if err := p.checkNotEnded(); err != nil {
		return nil, err
	}
	x, err := p.cluster.compile(ctx, p, code, opts)
	if err != nil {
		return nil, err
	}
	e := &executable{process: p, program: x}
	for row, device := range x.loaded.AddressableDevices() {
		if p.Addressable(device.ID()) {
			e.devices, e.deviceIndices = append(e.devices, device), append(e.deviceIndices, row)
		}
	}
	p.openPrograms.Add(1)
	return e, nil
}

// Close ends the process. While programs of the process are open, it returns an error.
func (p *process) Close() error {
	if n := p.openPrograms.Load(); n > 0 {
		return &errkind.Fault{Op: "simhost: close", Reason: fmt.Sprintf("%s: %d executables are open", p.name(), n),
			Hint: "close them first", Class: errkind.FailedPreconditionError}
	}
	p.cluster.Kill(p.index)
	return nil
}

// executable is a program that was compiled by one process.
type executable struct {
	process       *process
	program       *program
	devices       []*pjrt.Device
	deviceIndices []int // positions of devices in the whole launch

	closing  sync.Once
	closeErr error
}

func (e *executable) AddressableDevices() []*pjrt.Device { return slices.Clone(e.devices) }

func (e *executable) Loaded() *pjrt.LoadedExecutable { return e.program.loaded }

func (e *executable) Close() error {
	e.closing.Do(func() {
		e.process.openPrograms.Add(-1)
		e.closeErr = e.process.cluster.release(e.program)
	})
	return e.closeErr
}
