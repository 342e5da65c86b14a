package system

import (
	"context"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

// Runtime is what a System runs on, as one process sees it: a PJRT client, or a stand-in for one.
// Its methods are safe for concurrent use.
type Runtime interface {
	// PlatformName is the plugin's, "cpu" or "tpu".
	PlatformName() string
	// Devices are the devices of all processes.
	Devices() []*pjrt.Device
	// Addressable reports whether this process can use the device of an id.
	Addressable(id int) bool
	// BufferFromHost and RefillFromHost copy a tensor to a device of this process; see
	// [pjrt.Client].
	BufferFromHost(ctx context.Context, data []byte, dtype pjrt.DType, dims []int, d *pjrt.Device) (*pjrt.Buffer, error)
	RefillFromHost(ctx context.Context, into *pjrt.Buffer, data []byte, dtype pjrt.DType, dims []int, d *pjrt.Device) error
	// Compile compiles a program for devices of any processes.
	Compile(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (Executable, error)
	// Close ends the process's use of its devices.
	Close() error
}

// Executable is a compiled program as one process sees it. A client's [pjrt.LoadedExecutable] is an
// Executable; others give the LoadedExecutable that they run by a method Loaded, see [Loaded].
type Executable interface {
	// AddressableDevices are this process's devices of the program: element d is the device of
	// args[d] and results[d] of Execute.
	AddressableDevices() []*pjrt.Device
	// Execute launches the program on this process's devices; see [pjrt.LoadedExecutable.Execute].
	// Every process of the program launches it.
	Execute(ctx context.Context, args, results [][]*pjrt.Buffer, opts pjrt.ExecuteOptions) error
	Close() error
}

// Loaded returns the plugin's executable behind x, to inspect; nil if there is none.
func Loaded(x Executable) *pjrt.LoadedExecutable {
	switch x := x.(type) {
	case *pjrt.LoadedExecutable:
		return x
	case interface{ Loaded() *pjrt.LoadedExecutable }:
		return x.Loaded()
	}
	return nil
}

// New returns a system over a runtime that is open. Each task of the topology is a process; the
// runtime's addressable devices are those of one task. The runtime is the system's to close from
// now on.
func New(rt Runtime, topology tpu.Topology) (*System, error) {
	s, err := newSystem(rt, topology)
	if err != nil {
		return nil, &errkind.Fault{Op: "system: new", Err: err}
	}
	return s, nil
}

func newSystem(rt Runtime, topology tpu.Topology) (*System, error) {
	s := &System{runtime: rt, topology: topology, byID: map[int]*pjrt.Device{}}
	for _, device := range rt.Devices() {
		s.byID[device.ID()] = device
	}
	return s, s.checkDevices()
}

// clientRuntime is a client as the runtime of its process.
type clientRuntime struct{ *pjrt.Client }

func (c clientRuntime) Addressable(id int) bool {
	device, err := c.LookupDevice(id)
	return err == nil && device.Addressable()
}

func (c clientRuntime) Compile(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (Executable, error) {
	x, err := c.Client.Compile(ctx, program, opts)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// Runtime returns what the system runs on, which stays the system's to close.
func (s *System) Runtime() Runtime {
	if s.runtime == nil {
		return noRuntime{}
	}
	return s.runtime
}

// Addressable reports whether this process can use the device of an id.
func (s *System) Addressable(id int) bool { return s.Runtime().Addressable(id) }

// NumProcesses returns how many processes share the devices, which are the topology's tasks.
func (s *System) NumProcesses() int { return s.topology.NumTasks() }

// Process returns the number of this process, from 0, which is that of its task in the topology.
func (s *System) Process() int { return s.process }
