package gomlx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/hostdata"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Backend runs graphs on all devices of a system. It is safe for concurrent use.
type Backend struct {
	*lowering.Backend
	opts          Options
	mesh, logical sharding.Mesh
	// runtime's Life is the context of all operations, because the interfaces of package compute
	// have no contexts.
	runtime   *engine.Runtime
	ahead     *aheadTarget // nil unless the backend compiles ahead of time
	ruleUsage ruleUsage
	closers   []func() error // called by Close after the backend's own resources are closed

	reshardCount atomic.Int64 // number of times a value was resharded

	gatherMu       sync.Mutex
	gatherPrograms map[string]*variant // programs that gather tensors, by dtype, shape and layout; guarded by gatherMu

	resources *resources // buffers and programs
}

var _ compute.Backend = (*Backend)(nil)

// New returns a backend over all devices of sys. The caller must finalize the backend before
// closing sys.
func New(sys *system.System, opts Options) (*Backend, error) {
	return newBackend(context.Background(), sys, opts)
}

// newBackend is New with a parent context for the operations of the backend.
func newBackend(ctx context.Context, sys *system.System, opts Options) (*Backend, error) {
	if sys == nil {
		return nil, argumentError("New", "there is no system", "open one with system.Open, or use NewFromConfig")
	}
	if err := sys.Check(); err != nil {
		return nil, wrapError("New", "", err)
	}
	target := lowering.TargetTPU
	if sys.Platform() == "cpu" {
		target = lowering.TargetCPU
	}
	b := &Backend{opts: opts}
	err := b.initialize(ctx, sys.Topology(), target, sys.Platform(),
		func(of engine.Options) (*engine.Runtime, error) { return engine.NewRuntime(sys, of) })
	if err != nil {
		return nil, err
	}
	return b, nil
}

// initialize creates the runtime of the backend over the devices of a topology, and the backend
// that lowers its graphs. The target of lowering is Options.Target, or target if Options.Target is
// nil.
func (b *Backend) initialize(ctx context.Context, topology tpu.Topology, target lowering.Target, platform string,
	newRuntime func(engine.Options) (*engine.Runtime, error)) (err error) {
	b.resources = newResources()
	b.opts.Name = b.opts.backendName()
	if b.opts.Target == nil {
		b.opts.Target = &target
	}
	ids := slices.Concat(topology.DeviceIDs()...)
	if b.mesh, b.logical, err = newMeshes(len(ids), b.opts); err != nil {
		return err
	}
	if err := b.opts.validate(b.mesh); err != nil {
		return err
	}
	b.runtime, err = newRuntime(engine.Options{
		ErrorPrefix: "gomlx", Parent: ctx, Groups: slices.Collect(slices.Chunk(ids,
			b.logical.Size())), Compiler: b.opts.Compiler, Closed: errBackendFinalized,
		Differ: func(what string, _ []string, differing []int) error {
			return &MismatchError{Subject: what, Processes: differing}
		},
	})
	if err != nil {
		return wrapError("New", "", err)
	}
	lowered := lowering.Options{
		Target: *b.opts.Target, Precision: b.opts.Precision, Random: b.opts.Random,
		Partitioned: b.mesh.Size() > 1, Unfused: b.mesh.Size() > 1,
		Numbered: true, Origins: true,
		Constant:          b.newConstant,
		Compile:           b.compile,
		Data:              dataInterface{b},
		Name:              b.opts.Name,
		Description:       fmt.Sprintf("%s: %s, %d device(s) as %v", b.opts.Name, platform, len(ids), b.mesh),
		NumDevices:        len(ids),
		DeviceDescription: b.describeDevice,
	}
	b.Backend = lowering.New(lowered)
	return nil
}

func (b *Backend) describeDevice(num compute.DeviceNum) string {
	if b.ahead != nil {
		return "a device of " + b.ahead.target.Name
	}
	if err := b.checkDevice(num); err != nil {
		return err.Error()
	}
	return b.runtime.All[num].DebugString()
}

func newMeshes(devices int, opts Options) (deviceMesh, logicalMesh sharding.Mesh, err error) {
	logicalDevices := opts.LogicalDevices
	if logicalDevices == 0 && len(opts.Axes) == 0 {
		logicalDevices = 1
	}
	if logicalMesh, err = logical.NewMesh(logicalDevices, opts.Axes...); err != nil {
		return deviceMesh, logicalMesh, wrapError("New", "", err)
	}
	if devices%logicalMesh.Size() != 0 {
		return deviceMesh, logicalMesh, argumentError("New", fmt.Sprintf("%d logical devices do not divide %d devices",
			logicalMesh.Size(),
			devices), "give a divisor")
	}
	deviceMesh, err = sharding.NewMesh(append([]sharding.Axis{{Name: spmd.ReplicaAxis,
		Size: devices / logicalMesh.Size()}},
		logicalMesh.Axes()...)...)
	if err != nil {
		return deviceMesh, logicalMesh, wrapError("New", "", err)
	}
	return deviceMesh, logicalMesh, nil
}

// Mesh returns the mesh of the devices: the replica axis first, then the logical axes.
func (b *Backend) Mesh() sharding.Mesh { return b.mesh }

// System returns the system of the backend, or nil if the backend compiles ahead of time.
func (b *Backend) System() *system.System { return b.runtime.System }

func (b *Backend) checkDevice(num compute.DeviceNum) error {
	if num < 0 || int(num) >= b.mesh.Size() {
		return argumentError(fmt.Sprintf("device %d", num), fmt.Sprintf("it is not in [0, %d)", b.mesh.Size()),
			"name a device that the backend has")
	}
	return nil
}

// checkNamedDevices returns an error if the backend cannot run programs on devices that GoMLX
// selects by number.
func (b *Backend) checkNamedDevices() error {
	if b.ahead != nil {
		return b.ahead.unsupportedError("a program for devices that GoMLX names")
	}
	if b.runtime.IsMultiProcess() {
		return &errkind.Fault{Op: "gomlx: named devices", Reason: "the devices belong to several processes",
			Hint: "leave the distribution to the backend: use no device number but 0", Class: errkind.NotImplementedError,
			Err: errors.ErrUnsupported}
	}
	return nil
}

// Close frees all buffers and executables of the backend. Pending and later operations return
// [ErrFinalized]. A second Close returns the result of the first.
func (b *Backend) Close() error {
	if b == nil || b.runtime == nil {
		return nil
	}
	b.runtime.Cancel()
	b.Backend.Finalize()
	return b.resources.Close(func(errs []error) error {
		b.runtime.Launch.Lock()
		errs = append(errs, b.runtime.Close()...)
		b.runtime.Launch.Unlock()
		for _, end := range b.closers {
			errs = append(errs, end())
		}
		if err := errors.Join(errs...); err != nil {
			return wrapError("close", b.opts.Name, err)
		}
		return nil
	})
}

// Finalize calls Close and discards its error. It implements [compute.Backend].
func (b *Backend) Finalize() { _ = b.Close() }

// NumLive returns the number of buffers and executables that have not been freed, for tests and
// diagnosis.
func (b *Backend) NumLive() int { return b.resources.Len() }

type dataInterface struct{ *Backend }

// BufferFromFlatData copies flat, a Go slice in row-major order, which the caller may modify after
// the call. The tensor is transferred to the devices when a program first uses it as an input. With
// a single device, it is transferred immediately.
func (d dataInterface) BufferFromFlatData(num compute.DeviceNum, flat any, shape shapes.Shape) (compute.Buffer, error) {
	wrap := func(err error) error {
		return wrapError("transfer", fmt.Sprintf("of %s to device %d", shape, num), err)
	}
	if err := d.resources.Check(); err != nil {
		return nil, err
	}
	if err := d.checkDevice(num); err != nil {
		return nil, err
	}
	if _, err := lowering.StableHLOShape(shape); err != nil {
		return nil, wrap(err)
	}
	if _, err := hostdata.PJRTType(shape.DType); err != nil {
		return nil, wrap(err)
	}
	bytes, err := hostdata.DeviceBytes(flat, shape.DType, shape.Size())
	if err != nil {
		return nil, wrap(err)
	}
	if d.ahead == nil && d.mesh.Size() == 1 { // there is only one layout
		at, err := d.replicatedLayout(shape)
		if err != nil {
			return nil, wrap(err)
		}
		l, err := d.transfer(bytes, at)
		if err != nil {
			return nil, wrap(err)
		}
		return d.newBuffer(&bufferState{backend: d.Backend, shape: shape.Clone(), deviceNum: num,
			placements: []*placement{l}})
	}
	if !shape.DType.IsPacked() {
		bytes = slices.Clone(bytes)
	}
	if bytes == nil {
		bytes = []byte{}
	}
	return d.newBuffer(&bufferState{backend: d.Backend, shape: shape.Clone(), deviceNum: num, host: bytes})
}

// HasSharedBuffers returns false: device memory can only be accessed by copying.
func (dataInterface) HasSharedBuffers() bool { return false }

// NewSharedBuffer returns an error matching errors.ErrUnsupported.
func (dataInterface) NewSharedBuffer(compute.DeviceNum, shapes.Shape) (compute.Buffer, any, error) {
	return nil, nil, &errkind.Fault{Op: "gomlx: shared buffers", Hint: "use BufferFromFlatData",
		Class: errkind.NotImplementedError, Err: errors.ErrUnsupported}
}
