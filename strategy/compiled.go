package strategy

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/memory"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// CompiledStep describes a compiled step; report.Of creates a report of it. The strategy owns
// Program and Executable: do not close them.
type CompiledStep struct {
	stepAccess
	memory.CompiledStep
	// Executable is the program on the devices, or nil ahead of time.
	Executable *pjrt.LoadedExecutable
	Assignment tpu.DeviceAssignment
	// Initializing is the time for copying the variables to the devices, including the computation
	// of initial values (see [Variables.FirstValues]). It is 0 if the step was compiled without
	// running.
	Initializing time.Duration

	program *program
}

func (p *program) newCompiledStep() *CompiledStep {
	s := p.function.strategy
	c := &CompiledStep{Executable: system.UnwrapExecutable(p.executable), Assignment: s.assignment,
		Initializing: p.initializing, program: p}
	c.CompiledStep = memory.CompiledStep{
		Name: p.function.opts.Name, Target: s.sliceInfo(), Replicas: s.replicas, LogicalDevices: s.logicalDevices,
		Module:  p.module,
		Program: pjrtExecutable(p.executable), Parameters: p.countParameters(), Settings: p.settings(), Lowering: p.lowering,
		Compiling: p.compiling,
	}
	c.stepAccess = engine.NewAccess(internalStep{c})
	for i, v := range p.variables {
		c.Variables = append(c.Variables, v != nil && !p.module.Arguments[i].IsConstant)
	}
	return c
}

// settings returns properties of the step that its module does not contain and that suggestions for
// saving memory depend on.
func (p *program) settings() memory.Settings {
	s := memory.Settings{Microbatches: p.function.microbatches, LeastRows: 1}
	if slices.Contains(p.ragged, true) {
		s.LeastRows = 2 // a single row cannot be padded
	}
	for _, v := range p.variables {
		if v != nil && v.trainable {
			state, _ := p.function.strategy.opts.Variables.StateFor(v.path, v.shape)
			s.ShardedState |= state.Parts()
		}
	}
	return s
}

// prober is a [pjrt.Compiler] that can stop a compilation at an earlier stage, which is much faster
// than a complete compilation. Package pjrt/worker has an implementation.
type prober interface {
	Probe(ctx context.Context, topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions,
		stage pjrt.Stage) ([]byte, error)
}

// CompileVariant compiles a variant of the step with the strategy's compiler, and returns the
// partitioned or the optimized program. A Compiler of package pjrt/worker stops after the
// scheduler, so this takes only seconds. The step itself does not change.
func (c *CompiledStep) CompileVariant(ctx context.Context, m *spmd.Module) (pjrt.Program, error) {
	s := c.program.function.strategy
	if err := s.requireEager(ctx, c.Name, fault.InsteadOfRunning); err != nil {
		return pjrt.Program{}, err
	}
	program, opts := pjrt.Program{Code: m.Text, Trusted: true}, s.runtime.Options(m.Replicas)
	if p, ok := s.opts.Compiler.(prober); ok && s.slice != nil {
		module, err := p.Probe(ctx, s.slice.Description(), program, opts, pjrt.AfterScheduler)
		if !errors.Is(err, errors.ErrUnsupported) {
			return pjrt.Program{Code: module, Format: pjrt.FormatHLO}, err
		}
	}
	if s.runtime.System != nil && s.runtime.System.Platform() == "cpu" { // the variant never runs
		overrides := map[string]any{"xla_backend_optimization_level": 0}
		maps.Copy(overrides, opts.Overrides)
		opts.Overrides = overrides
	} else if m == c.Module && c.Program != nil {
		return c.Program.OptimizedProgram()
	}
	x, _, err := s.runtime.Build(ctx, c.Name, program, opts, nil)
	if err != nil {
		return pjrt.Program{}, err
	}
	defer x.Close()
	made := pjrtExecutable(x)
	if made == nil {
		return pjrt.Program{}, &errkind.Fault{Op: "strategy: compile a variant", Subject: c.Name,
			Reason: "the runtime does not provide the compiled program",
			Hint:   "use the devices of a PJRT plugin", Class: errkind.NotImplementedError}
	}
	return made.OptimizedProgram()
}

// pjrtExecutable returns the executable from which the program's statistics can be read, or nil if
// the runtime has no such executable.
func pjrtExecutable(x system.Executable) *pjrt.Executable {
	if offline, ok := x.(engine.OfflineProgram); ok {
		return offline.Executable
	}
	if loaded := system.UnwrapExecutable(x); loaded != nil {
		return loaded.Executable()
	}
	return nil
}

// asMemoryError converts err to a [*MemoryError] if the compiler rejected the program because it
// does not fit into memory. It returns all other errors unchanged.
func (p *program) asMemoryError(err error) error {
	refusal := memory.RefusalOf(err)
	if refusal == nil {
		return err
	}
	c := p.newCompiledStep()
	c.Refusal = refusal
	return newMemoryError(c, err)
}

// countParameters returns the number of elements of the step's trainable variables.
func (p *program) countParameters() (n int64) {
	for _, v := range p.variables {
		if v != nil && v.trainable {
			n += int64(shapes.Make(v.dtype, v.shape...).Size())
		}
	}
	return n
}

// sliceInfo describes the devices that the strategy compiles for.
func (s *TPUStrategy) sliceInfo() system.SliceInfo {
	if s.slice != nil {
		return s.slice.Info()
	}
	sys := s.runtime.System
	topology := sys.Topology()
	t := system.SliceInfo{Name: topology.Name(), Devices: topology.NumDevices(), Hosts: topology.NumTasks(),
		Kind: s.runtime.All[0].Kind()}
	if t.Name == "" || sys.Platform() == "cpu" {
		t.Name = sys.Platform()
	}
	if client := sys.Client(); client != nil {
		t.Plugin = client.PlatformVersion()
	}
	if g, ok := tpu.GenerationForDeviceKind(t.Kind); ok {
		perChip := float64(g.DevicesPerChip)
		t.PeakFLOPS, t.HBMBandwidth = g.PeakFLOPS/perChip, g.HBMBandwidth/perChip
	}
	return t
}
