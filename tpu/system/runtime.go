package system

import (
	"context"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
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

// errZero is the error of a zero System or Slice.
var errZero = &errkind.Fault{Op: "system", Reason: "it is a zero value", Err: pjrt.ErrClosed, Hint: "Open and Describe make one"}

// errClosed is the error of a closed System or Slice; from makes another.
func errClosed(what, from string) error {
	return &errkind.Fault{Op: "system", Reason: "the " + what + " is closed", Match: pjrt.ErrClosed, Hint: "make another with " + from}
}

// noRuntime is the runtime of the zero System.
type noRuntime struct{}

func (noRuntime) PlatformName() string { return "" }

func (noRuntime) Devices() []*pjrt.Device { return nil }

func (noRuntime) Addressable(int) bool { return false }

func (noRuntime) Close() error { return nil }

func (noRuntime) BufferFromHost(context.Context, []byte, pjrt.DType, []int, *pjrt.Device) (*pjrt.Buffer, error) {
	return nil, errZero
}

func (noRuntime) RefillFromHost(context.Context, *pjrt.Buffer, []byte, pjrt.DType, []int, *pjrt.Device) error {
	return errZero
}

func (noRuntime) Compile(context.Context, pjrt.Program, pjrt.CompileOptions) (Executable, error) {
	return nil, errZero
}
