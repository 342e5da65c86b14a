package strategy

import (
	"context"
	"slices"

	"github.com/tpustrategy/tpustrategy/lowering/module"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/strategy/internal/fault"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// Compiler compiles and loads programs in the place of the system's client: a cache of compiled
// programs (package pjrt/cache), or a compiler in a process of its own (package pjrt/worker). It is
// used where the system has a client. The context ends when the strategy is closed.
type Compiler interface {
	Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error)
}

// TopologyCompiler is a [Compiler] that compiles ahead of time, too, such as that of package
// pjrt/worker.
type TopologyCompiler interface {
	CompileTopology(ctx context.Context, topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error)
}

// compileOptions are the options of a program of so many replicas with an equal share of the
// strategy's devices each.
func (s *TPUStrategy) compileOptions(replicas int) pjrt.CompileOptions {
	return s.compileOptionsOf(slices.Concat(s.assignment.DeviceIDs()...), replicas)
}

// compileOptionsOn are the options of a program on the devices of some partitions.
func (s *TPUStrategy) compileOptionsOn(partitions []int, replicas int) pjrt.CompileOptions {
	all, on := slices.Concat(s.assignment.DeviceIDs()...), make([]int, len(partitions))
	for i, d := range partitions {
		on[i] = all[d]
	}
	return s.compileOptionsOf(on, replicas)
}

func (s *TPUStrategy) compileOptionsOf(devices []int, replicas int) pjrt.CompileOptions {
	replicas = max(replicas, 1)
	partitions := len(devices) / replicas
	return pjrt.CompileOptions{
		Replicas: replicas, Partitions: partitions, DeviceAssignment: slices.Collect(slices.Chunk(devices, partitions)),
		SPMD: partitions > 1, Shardy: partitions > 1, Overrides: s.opts.CompilerOptions,
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
	return nil, fault.Of("compiling "+name, err, "")
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
