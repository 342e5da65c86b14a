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
	backend   *Backend
	name      string
	module    *stablehlo.Builder
	main      *Function
	symbols   nameSet     // names of top-level functions
	functions []*Function // the top-level functions besides main

	meshes               []*shardy.DeviceMesh
	replicas, partitions int
	devices              []compute.DeviceNum
	distributed          bool  // DistributedSPMD or DistributedAutoSharding was called
	deferredErr          error // the first invalid sharding, returned by Compile
	compiled             bool

	origins *originTracker // nil without Options.Origins

	constants      []Constant
	constantValues map[string]compute.Value // the parameters that replace constants, by name
}

var _ compute.Builder = (*Builder)(nil)

func newBuilder(backend *Backend, name string) *Builder {
	b := &Builder{
		backend:    backend,
		name:       name,
		module:     stablehlo.New(identifier(name)),
		symbols:    nameSet{},
		replicas:   1,
		partitions: 1,
	}
	if backend.opts.Origins {
		b.origins = newOriginTracker()
	}
	b.main = newFunction(b, nil, b.module.Main(), compute.MainName)
	b.symbols[compute.MainName] = true
	return b
}

// Name returns the name given to Backend.Builder.
func (b *Builder) Name() string { return b.name }

// Backend returns the backend that created b.
func (b *Builder) Backend() *Backend { return b.backend }

// Main returns the entry function.
func (b *Builder) Main() compute.Function { return b.main }

// checkUsable returns an error if the backend's options are invalid, the backend is finalized, or
// the computation is compiled.
func (b *Builder) checkUsable() error {
	if b.backend.IsFinalized() {
		return ErrFinalized
	}
	if b.backend.optionsErr != nil {
		return b.backend.optionsErr
	}
	if b.compiled {
		return ErrCompiled
	}
	return nil
}

// NewFunction adds a top-level function, which is called with [Function.Call].
func (b *Builder) NewFunction(name string) (compute.Function, error) {
	if err := b.checkUsable(); err != nil {
		return nil, err
	}
	if symbol := identifier(name); b.symbols[symbol] {
		return nil, newFault(fmt.Sprintf("function %q", name),
			fmt.Sprintf("one of this name already exists in computation %q", b.name), "give each function a name of its own")
	}
	f := newFunction(b, nil, b.module.NewFunction(b.symbols.uniqueName(name)), name)
	b.functions = append(b.functions, f)
	return f, nil
}

// OpShape returns the shape of a value of this computation.
func (b *Builder) OpShape(op compute.Value) (shapes.Shape, error) {
	w, err := b.main.checkOwner(op)
	if err != nil {
		return shapes.Invalid(), &errkind.Fault{Op: "lowering: OpShape", Class: errkind.InvalidArgumentError, Err: err}
	}
	return w.shape, nil
}

// DistributedSPMD makes the program run on numDevices replicas.
func (b *Builder) DistributedSPMD(numDevices int) error {
	if err := b.checkUsable(); err != nil {
		return err
	}
	if numDevices < 1 {
		return newFault("DistributedSPMD", fmt.Sprintf("%d devices", numDevices), "ask for at least 1")
	}
	b.replicas, b.partitions, b.distributed = numDevices, 1, true
	return nil
}

// DistributedAutoSharding makes the program run on the devices of the meshes. Shardy partitions the
// program according to the shardings that are passed to Parameter and Return.
func (b *Builder) DistributedAutoSharding(meshes ...compute.Mesh) error {
	if err := b.checkUsable(); err != nil {
		return err
	}
	if len(meshes) == 0 {
		return newFault("DistributedAutoSharding", "no mesh", "give at least one mesh")
	}
	b.meshes = nil
	all := make([]*shardy.DeviceMesh, 0, len(meshes))
	for _, m := range meshes {
		if slices.ContainsFunc(all, func(other *shardy.DeviceMesh) bool { return other.Name() == m.Name }) {
			return newFault("DistributedAutoSharding", fmt.Sprintf("two meshes are named %q", m.Name),
				"give each mesh a name of its own")
		}
		mesh, err := shardy.NewDeviceMesh(m.Name, m.AxesSizes, m.AxesNames)
		if err == nil && len(m.LogicalDeviceAssignment) > 0 {
			err = mesh.SetLogicalDeviceAssignment(m.LogicalDeviceAssignment...)
		}
		if err != nil {
			return &errkind.Fault{Op: "lowering: DistributedAutoSharding", Subject: fmt.Sprintf("mesh %q", m.Name),
				Class: errkind.InvalidArgumentError, Err: err}
		}
		if slices.Min(m.AxesSizes) < 1 {
			return newFault(fmt.Sprintf("mesh %q", m.Name), fmt.Sprintf("its axes have sizes %v", m.AxesSizes),
				"give each axis a size of at least 1")
		}
		if err := checkDeviceOrder(m); err != nil {
			b.deferError(err)
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
	if err := b.checkUsable(); err != nil {
		return err
	}
	if want := b.replicas * b.partitions; len(devices) != want {
		return newFault("DeviceAssignment", fmt.Sprintf("the computation wants %d devices, got %d", want, len(devices)),
			"name a device for each replica and partition, after DistributedSPMD or DistributedAutoSharding")
	}
	for i, d := range devices {
		if d < 0 || int(d) >= b.backend.NumDevices() {
			return newFault("DeviceAssignment", fmt.Sprintf("device %d is not in [0, %d)", d, b.backend.NumDevices()),
				"name devices that the backend has")
		}
		if slices.Contains(devices[:i], d) {
			return newFault("DeviceAssignment", fmt.Sprintf("device %d is named twice", d), "name each device once")
		}
	}
	b.devices = slices.Clone(devices)
	return nil
}

// Compile finishes the computation and calls Options.Compile. If Options.Compile is nil, Compile
// returns an [*Executable], which cannot run. Ops that are added afterwards return [ErrCompiled].
func (b *Builder) Compile() (compute.Executable, error) {
	if err := b.checkUsable(); err != nil {
		return nil, err
	}
	if b.main.outputs == nil {
		return nil, newFault(fmt.Sprintf("computation %q", b.name), "Return was not called on the main function",
			"call it before Compile")
	}
	for _, f := range b.functions {
		if f.outputs == nil {
			return nil, newFault(fmt.Sprintf("computation %q", b.name), fmt.Sprintf("Return was not called on function %q",
				f.name), "call it before Compile")
		}
	}
	if b.deferredErr != nil {
		return nil, b.deferredErr
	}
	b.compiled = true
	b.origins.finish()
	program := &Program{
		Name:           b.name,
		Module:         b.irModule(),
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
	if b.origins != nil {
		for i, p := range program.Main().Parameters {
			p.Origin = b.origins.parameters[i]
		}
	}
	program.moveConstantsLast()
	if b.backend.opts.Compile != nil {
		return b.backend.opts.Compile(program)
	}
	return &Executable{program: program}, nil
}

func (b *Builder) irModule() *ir.Module {
	m := &ir.Module{Name: identifier(b.name), Functions: []*ir.Function{b.lowerReplications(b.main.IR())}}
	for _, f := range b.functions {
		m.Functions = append(m.Functions, b.lowerReplications(f.IR()))
	}
	if b.distributed {
		m.Attributes = append(m.Attributes, ir.Attribute{Key: "stablehlo.num_replicas",
			Value: ir.Raw(strconv.Itoa(b.replicas))})
	}
	if len(b.meshes) > 0 {
		m.Attributes = append(m.Attributes, ir.Attribute{Key: "stablehlo.num_partitions",
			Value: ir.Raw(strconv.Itoa(b.partitions))})
	}
	for _, mesh := range b.meshes {
		m.Meshes = append(m.Meshes, ir.Raw(mesh.ToStableHLO()))
	}
	if b.partitions > 1 {
		m = ReplicateUnsplittableDims(m, b.backend.opts.Target, b.constraint)
	}
	return m
}
