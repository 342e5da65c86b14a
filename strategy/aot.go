package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// NewAheadOfTime returns a strategy over a described slice that need not be at
// hand. Steps are traced, lowered and compiled as on a live system, for the
// slice's real coordinates; nothing can run ([*AheadOfTimeError]). Variables get
// no first values and arguments no contents, so that a model may be larger than
// this machine; instead of a host tensor an argument may be its shape, a
// shapes.Shape of the whole batch.
//
// [Function.Compiled] and [TrainStep.Compiled] give the compiled step. A program
// that does not fit into the devices' memory is a [*MemoryError]. The slice stays
// the caller's; close the strategy before it.
func NewAheadOfTime(slice *system.Slice, opts Options) (*TPUStrategy, error) {
	if slice == nil {
		return nil, errors.New("strategy: there is no slice: it is nil; see the error of system.Describe")
	}
	s, err := newStrategy(slice.Topology(), opts)
	if err != nil {
		return nil, err
	}
	s.slice = slice
	return s, nil
}

// Slice returns the described slice that the strategy compiles for, or nil if it
// runs on a system.
func (s *TPUStrategy) Slice() *system.Slice { return s.slice }

// AheadOfTimeError is that something was to run, or to be read, on a slice that is
// only described.
type AheadOfTimeError struct {
	// Doing says what.
	Doing string
	// Slice is the slice's name.
	Slice string
}

func (e *AheadOfTimeError) Error() string {
	return fmt.Sprintf("strategy: %s: the strategy compiles ahead of time for %s, which is not here; open a system and use New to run", e.Doing, e.Slice)
}

// Kind is NotImplementedError.
func (*AheadOfTimeError) Kind() errkind.Kind { return errkind.NotImplementedError }

// Is matches errors.ErrUnsupported.
func (e *AheadOfTimeError) Is(target error) bool { return target == errors.ErrUnsupported }

// runnable refuses what needs devices.
func (s *TPUStrategy) runnable(doing string) error {
	if s.slice == nil {
		return nil
	}
	return &AheadOfTimeError{Doing: doing, Slice: s.slice.Facts().Name}
}

// abstract is a value without contents, in the place of a host argument. A local
// batch is that of this process's replicas.
func (s *TPUStrategy) abstract(shape shapes.Shape, splitBatch, local bool, a logical.Annotation) (Value, error) {
	if !shape.Ok() {
		return nil, fmt.Errorf("strategy: %s is no shape of an argument", shape)
	}
	dims := shape.Dimensions
	if splitBatch {
		var err error
		// Ahead of time there are no processes: the batch is the whole one.
		if dims, err = shareShape(dims, s.shares(local && s.slice == nil)); err != nil {
			return nil, err
		}
	}
	if _, err := s.layout(shape.DType, dims, a, splitBatch); err != nil {
		return nil, err
	}
	v, err := s.newValue(splitBatch, shape.DType, dims, a, nil)
	if err != nil {
		return nil, err
	}
	v.base().outline = true
	return v, nil
}

// abstractStack is a stacked value without contents.
func (s *TPUStrategy) abstractStack(batches []any, a logical.Annotation, local bool) (*Stacked, error) {
	var first shapes.Shape
	for i, batch := range batches {
		shape, ok := batch.(shapes.Shape)
		if !ok {
			tensor, err := hostTensor(batch)
			if err != nil {
				return nil, fmt.Errorf("strategy: batch of step %d: %w", i, err)
			}
			shape = tensor.Shape()
		}
		if i == 0 {
			first = shape
		} else if !shape.Equal(first) {
			return nil, fmt.Errorf("strategy: the batch of step %d has shape %s, that of step 0 %s; a loop has one shape for all", i, shape, first)
		}
	}
	one, err := s.abstract(first, true, local, a)
	if err != nil {
		return nil, err
	}
	v := &Stacked{}
	base := one.base()
	v.strategy, v.dtype, v.shape, v.annotation, v.perReplica, v.steps = s, base.dtype, base.shape, a, true, len(batches)
	v.outline = true
	if err := s.hold(&v.distributed); err != nil {
		return nil, err
	}
	return v, nil
}

// Compiler compiles and loads programs for a client in the client's place, as a cache of
// compiled programs does, or package pjrt/worker in a process of its own. It is used
// where the system has a client. ctx ends when the strategy is closed.
type Compiler interface {
	Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error)
}

// TopologyCompiler is what a [Compiler] also is that compiles ahead of time, such as that
// of package pjrt/worker.
type TopologyCompiler interface {
	CompileTopology(ctx context.Context, topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error)
}

// Compiled is what can be inspected of a compiled step. Program and Executable
// stay the strategy's.
type Compiled struct {
	// Name is the step function's.
	Name string
	// Module is the step as it was given to the compiler.
	Module *module.Module
	// Program is the compiled program: its memory, its cost and its text.
	Program *pjrt.Executable
	// Executable is the program on the devices; nil ahead of time.
	Executable *pjrt.LoadedExecutable
	// Variables says which of Module.Arguments are variables.
	Variables []bool
	// Assignment is what the program was compiled for.
	Assignment tpu.DeviceAssignment
	// Lowering is the time that tracing and lowering took, Compiling the time of
	// the plugin's compiler.
	Lowering, Compiling time.Duration
	// Variables' values arrive on the devices before a step that is to run is
	// compiled: Arriving is the time of that, with the first values that were made,
	// see [Variables.FirstValues]. A step that is only compiled has none.
	Arriving time.Duration

	program *program
}

// compiled describes the program.
func (p *program) compiled() *Compiled {
	s := p.function.strategy
	c := &Compiled{
		Name: p.function.opts.Name, Module: p.module, Executable: system.Loaded(p.executable), Assignment: s.assignment,
		Lowering: p.lowering, Arriving: p.arriving, Compiling: p.compiling, program: p,
	}
	if x, ok := p.executable.(aheadExecutable); ok {
		c.Program = x.Executable
	} else if c.Executable != nil {
		c.Program = c.Executable.Executable()
	}
	for _, v := range p.variables {
		c.Variables = append(c.Variables, v != nil)
	}
	return c
}

// compileOptions are those of a program of so many replicas with an equal share of the
// strategy's devices each.
func (s *TPUStrategy) compileOptions(replicas int) pjrt.CompileOptions {
	return compileOptionsOf(slices.Concat(s.assignment.DeviceIDs()...), replicas)
}

// compileOptionsOn are those of a program on the devices of some partitions.
func (s *TPUStrategy) compileOptionsOn(partitions []int, replicas int) pjrt.CompileOptions {
	all, on := slices.Concat(s.assignment.DeviceIDs()...), make([]int, len(partitions))
	for i, d := range partitions {
		on[i] = all[d]
	}
	return compileOptionsOf(on, replicas)
}

func compileOptionsOf(devices []int, replicas int) pjrt.CompileOptions {
	replicas = max(replicas, 1)
	partitions := len(devices) / replicas
	return pjrt.CompileOptions{
		Replicas: replicas, Partitions: partitions, DeviceAssignment: slices.Collect(slices.Chunk(devices, partitions)),
		SPMD: partitions > 1, Shardy: partitions > 1,
	}
}

// build compiles a step's module: onto the devices, or ahead of time.
func (s *TPUStrategy) build(ctx context.Context, name string, m *module.Module, opts pjrt.CompileOptions) (system.Executable, error) {
	code := pjrt.Lowered(m.Text, m.Facts())
	x, err := s.buildProgram(ctx, code, opts)
	if err == nil {
		return x, nil
	}
	if memory := memoryError(name, m, err); memory != nil {
		return nil, memory
	}
	return nil, fmt.Errorf("strategy: compiling %s: %w", name, err)
}

func (s *TPUStrategy) buildProgram(ctx context.Context, code pjrt.Program, opts pjrt.CompileOptions) (system.Executable, error) {
	if s.slice != nil {
		compile := s.slice.Compile
		if c, ok := s.opts.Compiler.(TopologyCompiler); ok {
			compile = func(ctx context.Context, code pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error) {
				return c.CompileTopology(ctx, s.slice.Description(), code, opts)
			}
		}
		x, err := compile(ctx, code, opts)
		if err != nil {
			return nil, err
		}
		return aheadExecutable{x}, nil
	}
	if client := s.sys.Client(); client != nil && s.opts.Compiler != nil {
		x, err := s.opts.Compiler.Compile(ctx, client, code, opts)
		if err != nil {
			return nil, err
		}
		return x, nil
	}
	return s.sys.Runtime().Compile(ctx, code, opts)
}

// aheadExecutable is one for devices that are not here.
type aheadExecutable struct{ *pjrt.Executable }

func (aheadExecutable) AddressableDevices() []*pjrt.Device { return nil }

func (aheadExecutable) Execute(context.Context, [][]*pjrt.Buffer, [][]*pjrt.Buffer, pjrt.ExecuteOptions) error {
	return &AheadOfTimeError{Doing: "running a program", Slice: "a described slice"}
}
