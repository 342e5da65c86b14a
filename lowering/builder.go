package lowering

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
	"github.com/gomlx/go-xla/types/shardy"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Builder builds one computation. It is not safe for concurrent use.
type Builder struct {
	backend *Backend
	name    string
	module  *stablehlo.Builder
	main    *Function
	symbols names       // names of top-level functions
	others  []*Function // the top-level functions besides main

	meshes               []*shardy.DeviceMesh
	replicas, partitions int
	devices              []compute.DeviceNum
	distributed          bool  // DistributedSPMD or DistributedAutoSharding was called
	refused              error // the first invalid sharding, returned by Compile
	compiled             bool

	lines *lines // nil without Options.Origins

	constants      []Constant
	constantValues map[string]compute.Value // the parameters that replace constants, by name
}

var _ compute.Builder = (*Builder)(nil)

func newBuilder(backend *Backend, name string) *Builder {
	b := &Builder{
		backend:    backend,
		name:       name,
		module:     stablehlo.New(identifier(name)),
		symbols:    names{},
		replicas:   1,
		partitions: 1,
	}
	if backend.opts.Origins {
		b.lines = newLines()
	}
	b.main = newFunction(b, nil, b.module.Main(), compute.MainName)
	b.symbols[compute.MainName] = true
	return b
}

// Name returns the name given to Backend.Builder.
func (b *Builder) Name() string { return b.name }

// Backend returns the backend this builder belongs to.
func (b *Builder) Backend() *Backend { return b.backend }

// Main returns the entry function.
func (b *Builder) Main() compute.Function { return b.main }

// check returns an error if the backend is finalized or the computation is compiled.
func (b *Builder) check() error {
	if b.backend.IsFinalized() {
		return ErrFinalized
	}
	if b.backend.bad != nil {
		return b.backend.bad
	}
	if b.compiled {
		return ErrCompiled
	}
	return nil
}

// NewFunction adds a top-level function, which is called with [Function.Call].
func (b *Builder) NewFunction(name string) (compute.Function, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	if symbol := identifier(name); b.symbols[symbol] {
		return nil, fault(fmt.Sprintf("function %q", name), fmt.Sprintf("one of this name already exists in computation %q", b.name), "give each function a name of its own")
	}
	f := newFunction(b, nil, b.module.NewFunction(b.symbols.pick(name)), name)
	b.others = append(b.others, f)
	return f, nil
}

// OpShape returns the shape of a value of this computation.
func (b *Builder) OpShape(op compute.Value) (shapes.Shape, error) {
	w, err := b.main.own(op)
	if err != nil {
		return shapes.Invalid(), &errkind.Fault{Op: "lowering: OpShape", Class: errkind.InvalidArgumentError, Err: err}
	}
	return w.shape, nil
}

// DistributedSPMD makes the program run on numDevices replicas.
func (b *Builder) DistributedSPMD(numDevices int) error {
	if err := b.check(); err != nil {
		return err
	}
	if numDevices < 1 {
		return fault("DistributedSPMD", fmt.Sprintf("%d devices", numDevices), "ask for at least 1")
	}
	b.replicas, b.partitions, b.distributed = numDevices, 1, true
	return nil
}

// DistributedAutoSharding makes the program run on the devices of the meshes. Shardy partitions it
// according to the shardings that are passed to Parameter and Return.
func (b *Builder) DistributedAutoSharding(meshes ...compute.Mesh) error {
	if err := b.check(); err != nil {
		return err
	}
	if len(meshes) == 0 {
		return fault("DistributedAutoSharding", "no mesh", "give at least one mesh")
	}
	b.meshes = nil
	all := make([]*shardy.DeviceMesh, 0, len(meshes))
	for _, m := range meshes {
		if slices.ContainsFunc(all, func(other *shardy.DeviceMesh) bool { return other.Name() == m.Name }) {
			return fault("DistributedAutoSharding", fmt.Sprintf("two meshes are named %q", m.Name), "give each mesh a name of its own")
		}
		mesh, err := shardy.NewDeviceMesh(m.Name, m.AxesSizes, m.AxesNames)
		if err == nil && len(m.LogicalDeviceAssignment) > 0 {
			err = mesh.SetLogicalDeviceAssignment(m.LogicalDeviceAssignment...)
		}
		if err != nil {
			return &errkind.Fault{Op: "lowering: DistributedAutoSharding", Subject: fmt.Sprintf("mesh %q", m.Name), Class: errkind.InvalidArgumentError, Err: err}
		}
		if slices.Min(m.AxesSizes) < 1 {
			return fault(fmt.Sprintf("mesh %q", m.Name), fmt.Sprintf("its axes have sizes %v", m.AxesSizes), "give each axis a size of at least 1")
		}
		if err := ordered(m); err != nil {
			b.refuse(err)
		}
		all = append(all, mesh)
	}
	b.meshes = all
	b.module.WithShardy(b.meshes...)
	b.replicas, b.partitions, b.distributed = 1, 1, true
	for _, mesh := range b.meshes {
		b.partitions = max(b.partitions, mesh.NumDevices())
	}
	return nil
}

// DeviceAssignment sets the device of each replica or partition.
func (b *Builder) DeviceAssignment(devices ...compute.DeviceNum) error {
	if err := b.check(); err != nil {
		return err
	}
	if want := b.replicas * b.partitions; len(devices) != want {
		return fault("DeviceAssignment", fmt.Sprintf("the computation wants %d devices, got %d", want, len(devices)), "name a device for each replica and partition, after DistributedSPMD or DistributedAutoSharding")
	}
	for i, d := range devices {
		if d < 0 || int(d) >= b.backend.NumDevices() {
			return fault("DeviceAssignment", fmt.Sprintf("device %d is not in [0, %d)", d, b.backend.NumDevices()), "name devices that the backend has")
		}
		if slices.Contains(devices[:i], d) {
			return fault("DeviceAssignment", fmt.Sprintf("device %d is named twice", d), "name each device once")
		}
	}
	b.devices = slices.Clone(devices)
	return nil
}

// Compile finishes the computation. Without Options.Compile it returns an [*Executable]. Later ops
// of the builder return [ErrCompiled].
func (b *Builder) Compile() (compute.Executable, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	if b.main.outputs == nil {
		return nil, fault(fmt.Sprintf("computation %q", b.name), "Return was not called on the main function", "call it before Compile")
	}
	for _, f := range b.others {
		if f.outputs == nil {
			return nil, fault(fmt.Sprintf("computation %q", b.name), fmt.Sprintf("Return was not called on function %q", f.name), "call it before Compile")
		}
	}
	if b.refused != nil {
		return nil, b.refused
	}
	b.compiled = true
	b.lines.finish()
	program := &Program{
		Name:           b.name,
		Module:         b.program(),
		ParameterNames: slices.Clone(b.main.parameterNames),
		Parameters:     slices.Clone(b.main.parameters),
		Outputs:        slices.Clone(b.main.outputs),
		Shards:         slices.Clone(b.main.shards),
		Replicas:       b.replicas,
		Partitions:     b.partitions,
		Devices:        b.devices,
		Target:         b.backend.opts.Target,
		Constants:      b.constants,
	}
	if b.lines != nil {
		for i, p := range program.Main().Parameters {
			p.Origin = b.lines.parameters[i]
		}
	}
	program.constantsLast()
	if b.backend.opts.Compile != nil {
		return b.backend.opts.Compile(program)
	}
	return &Executable{program: program}, nil
}

// program returns the computation as a module.
func (b *Builder) program() *ir.Module {
	m := &ir.Module{Name: identifier(b.name), Functions: []*ir.Function{b.constrainMarked(b.main.IR())}}
	for _, f := range b.others {
		m.Functions = append(m.Functions, b.constrainMarked(f.IR()))
	}
	if b.distributed {
		m.Attributes = append(m.Attributes, ir.Attribute{Key: "stablehlo.num_replicas", Value: ir.Raw(strconv.Itoa(b.replicas))})
	}
	if len(b.meshes) > 0 {
		m.Attributes = append(m.Attributes, ir.Attribute{Key: "stablehlo.num_partitions", Value: ir.Raw(strconv.Itoa(b.partitions))})
	}
	for _, mesh := range b.meshes {
		m.Meshes = append(m.Meshes, ir.Raw(mesh.ToStableHLO()))
	}
	if b.partitions > 1 {
		m = GatherWalkedDims(m, b.backend.opts.Target, b.constraint)
	}
	return m
}
