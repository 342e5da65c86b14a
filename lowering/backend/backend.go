package backend

import (
	"context"
	"errors"
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/holdings"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Options configures a Backend. The zero value suits the client's platform; with it, New(nil,
// Options{}) is a backend of one CPU device.
type Options struct {
	// Name is the backend's short name; "tpustrategy" if empty.
	Name string

	// Target is what programs are written for. Nil takes lowering.TargetCPU where the client says
	// its platform is "cpu", and lowering.TargetTPU elsewhere.
	Target *lowering.Target

	// Precision is written on every dot_general and convolution.
	Precision lowering.Precision

	// Random is the generator of random bits.
	Random lowering.Random

	// AliasDonated lets results take the memory of donated arguments, which saves a copy of all
	// variables in a training step. Which arguments are donated is known only when a program is
	// first executed, so it is compiled then, once for each set of donated arguments; errors of the
	// compiler come from Execute.
	AliasDonated bool

	// Identity emits what stands for compute's Identity op; see lowering.Options. Nil returns its
	// operand.
	Identity func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error)
}

// Backend runs graphs on the devices of a PJRT client. Device numbers are places in the client's
// AddressableDevices. It is safe for concurrent use.
type Backend struct {
	*lowering.Backend
	client  *pjrt.Client
	devices []*pjrt.Device
	opts    Options
	owned   []func() error // what Close closes after its own things

	holds *holdings.Set // buffers and programs
}

var _ compute.Backend = (*Backend)(nil)

// New returns a backend over client, which must stay open until the backend is finalized. Without a
// client it opens one of its own, with one device of the CPU plugin, which is found as
// [NewFromConfig] finds it.
func New(client *pjrt.Client, opts Options) (*Backend, error) {
	if client == nil {
		return NewFromConfig(context.Background(), "", opts, pjrt.FindOptions{})
	}
	if err := (lowering.Options{Precision: opts.Precision, Random: opts.Random}).Check(); err != nil {
		return nil, err
	}
	b := &Backend{client: client, devices: client.AddressableDevices(), opts: opts, holds: holdings.New(ErrFinalized)}
	if len(b.devices) == 0 {
		return nil, fault("New", "the client has no addressable device", "give the client of a process that has devices")
	}
	if b.opts.Name == "" {
		b.opts.Name = "tpustrategy"
	}
	target := lowering.TargetTPU
	if client.PlatformName() == "cpu" {
		target = lowering.TargetCPU
	}
	if opts.Target != nil {
		target = *opts.Target
	}
	b.Backend = lowering.New(lowering.Options{
		Target:    target,
		Precision: opts.Precision,
		Random:    opts.Random,
		Numbered:  true,
		Identity:  opts.Identity,
		Compile:   b.compile,
		Data:      data{b},
		Name:      b.opts.Name,
		Description: fmt.Sprintf("%s: %s, %d device(s), by %s", b.opts.Name, client.PlatformName(), len(b.devices),
			client.Plugin()),
		NumDevices: len(b.devices),
		DeviceDescription: func(num compute.DeviceNum) string {
			d, err := b.device(num)
			if err != nil {
				return err.Error()
			}
			return d.DebugString()
		},
	})
	return b, nil
}

// Client returns the client the backend runs on.
func (b *Backend) Client() *pjrt.Client { return b.client }

// device returns device num.
func (b *Backend) device(num compute.DeviceNum) (*pjrt.Device, error) {
	if num < 0 || int(num) >= len(b.devices) {
		return nil, fault(fmt.Sprintf("device %d", num), fmt.Sprintf("it is not in [0, %d)", len(b.devices)), "name a device that the backend has")
	}
	return b.devices[num], nil
}

// Close frees all buffers and executables of the backend, and makes every use of it an error. A
// second Close returns the first one's result.
func (b *Backend) Close() error {
	b.Backend.Finalize()
	return b.holds.Close(func(errs []error) error {
		for _, end := range b.owned {
			errs = append(errs, end())
		}
		if err := errors.Join(errs...); err != nil {
			return failed("close", b.opts.Name, err)
		}
		return nil
	})
}

// Finalize is Close without its error, as compute.Backend has it.
func (b *Backend) Finalize() { _ = b.Close() }

// data is the backend's side that moves tensors.
type data struct{ *Backend }

// BufferFromFlatData copies flat, a Go slice in row-major order, to a device. It is the caller's
// again when the call returns.
func (d data) BufferFromFlatData(num compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	return d.fromFlat(num, flat, shape)
}

// HasSharedBuffers returns false: memory of the device is reached by copies only.
func (data) HasSharedBuffers() bool { return false }

// NewSharedBuffer returns an error matching errors.ErrUnsupported.
func (data) NewSharedBuffer(compute.DeviceNum, shapes.Shape) (compute.Buffer, any, error) {
	return nil, nil, &errkind.Fault{Op: "backend: shared buffers", Hint: "use BufferFromFlatData", Class: errkind.NotImplementedError, Err: errors.ErrUnsupported}
}

// fromFlat is BufferFromFlatData with this package's type.
func (b *Backend) fromFlat(num compute.DeviceNum, flat any, shape shapes.Shape) (*Buffer, error) {
	if err := b.holds.Check(); err != nil {
		return nil, err
	}
	_, err := lowering.StableHLOShape(shape)
	if err == nil {
		_, err = hostdata.Type(shape.DType)
	}
	var bytes []byte
	if err == nil {
		bytes, err = hostdata.Host(flat, shape.DType, shape.Size())
	}
	if err != nil {
		return nil, failed("transfer", fmt.Sprintf("of %s to device %d", shape, num), err)
	}
	return b.FromHost(num, bytes, shape)
}

// FromHost copies a tensor to a device, from bytes as the plugin takes them: row-major, an element
// of less than a byte in one byte.
func (b *Backend) FromHost(num compute.DeviceNum, bytes []byte, shape shapes.Shape) (*Buffer, error) {
	if err := b.holds.Check(); err != nil {
		return nil, err
	}
	dev, err := b.device(num)
	if err != nil {
		return nil, err
	}
	wrap := func(err error) error { return failed("transfer", fmt.Sprintf("of %s to device %d", shape, num), err) }
	if _, err := lowering.StableHLOShape(shape); err != nil {
		return nil, wrap(err)
	}
	t, err := hostdata.Type(shape.DType)
	if err != nil {
		return nil, wrap(err)
	}
	buf, err := b.client.BufferFromHost(context.Background(), bytes, t, shape.Dimensions, dev)
	if err != nil {
		return nil, wrap(err)
	}
	return b.newBuffer(buf, shape.Clone(), num)
}

// Live returns how many buffers and executables of the backend hold memory, for tests and
// diagnosis.
func (b *Backend) Live() int { return b.holds.Len() }
