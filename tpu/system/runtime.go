package system

import (
	"context"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Runtime provides the devices of a [System] to one process. It is a PJRT client, or a replacement
// for a client such as a simulated process. Its methods are safe for concurrent use.
type Runtime interface {
	// PlatformName returns the name of the plugin's platform, such as "cpu" or "tpu".
	PlatformName() string
	// Devices returns the devices of all processes.
	Devices() []*pjrt.Device
	// Addressable reports whether this process can use the device with the given id.
	Addressable(id int) bool
	// BufferFromHost copies a tensor to a new buffer on a device of this process. RefillFromHost
	// copies a tensor to an existing buffer. See [pjrt.Client].
	BufferFromHost(ctx context.Context, data []byte, dtype pjrt.DType, dims []int, d *pjrt.Device) (*pjrt.Buffer, error)
	RefillFromHost(ctx context.Context, into *pjrt.Buffer, data []byte, dtype pjrt.DType, dims []int, d *pjrt.Device) error
	// Compile compiles a program for devices of one or several processes.
	Compile(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (Executable, error)
	// Close releases the devices of the process.
	Close() error
}

// Executable is a program that is compiled for devices of one process. [pjrt.LoadedExecutable]
// implements it. Other implementations can have a method Loaded that returns the underlying
// LoadedExecutable; see [UnwrapExecutable].
type Executable interface {
	// AddressableDevices returns the devices of the program that belong to this process. Element d
	// is the device of args[d] and results[d] in Execute.
	AddressableDevices() []*pjrt.Device
	// Execute launches the program on the devices of this process; see
	// [pjrt.LoadedExecutable.Execute]. Every process of the program must launch it.
	Execute(ctx context.Context, args, results [][]*pjrt.Buffer, opts pjrt.ExecuteOptions) error
	Close() error
}

// UnwrapExecutable returns the [pjrt.LoadedExecutable] of x, or nil if x does not provide one.
func UnwrapExecutable(x Executable) *pjrt.LoadedExecutable {
	switch x := x.(type) {
	case *pjrt.LoadedExecutable:
		return x
	case interface{ Loaded() *pjrt.LoadedExecutable }:
		return x.Loaded()
	}
	return nil
}

// clientRuntime implements Runtime with a PJRT client.
type clientRuntime struct{ *pjrt.Client }

func (c clientRuntime) Addressable(id int) bool {
	device, err := c.LookupDevice(id)
	return err == nil && device.Addressable()
}

func (c clientRuntime) Compile(ctx context.Context, program pjrt.Program, opts pjrt.CompileOptions) (Executable,
	error) {
	x, err := c.Client.Compile(ctx, program, opts)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// errZero reports the use of a zero System or Slice.
var errZero = &errkind.Fault{Op: "system", Reason: "the object is a zero value", Match: pjrt.ErrClosed,
	Hint: "create it with Open or Describe"}

// closedError returns an error for a closed object, such as a System. function is the function that
// creates a new object.
func closedError(object, function string) error {
	return &errkind.Fault{Op: "system", Reason: "the " + object + " is closed", Match: pjrt.ErrClosed,
		Hint: "create a new one with " + function}
}

// zeroRuntime is the runtime of the zero System. It has no devices.
type zeroRuntime struct{}

func (zeroRuntime) PlatformName() string { return "" }

func (zeroRuntime) Devices() []*pjrt.Device { return nil }

func (zeroRuntime) Addressable(int) bool { return false }

func (zeroRuntime) Close() error { return nil }

func (zeroRuntime) BufferFromHost(context.Context, []byte, pjrt.DType, []int, *pjrt.Device) (*pjrt.Buffer, error) {
	return nil, errZero
}

func (zeroRuntime) RefillFromHost(context.Context, *pjrt.Buffer, []byte, pjrt.DType, []int, *pjrt.Device) error {
	return errZero
}

func (zeroRuntime) Compile(context.Context, pjrt.Program, pjrt.CompileOptions) (Executable, error) {
	return nil, errZero
}
