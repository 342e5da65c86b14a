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
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// CompiledStep describes a compiled step. The strategy owns Program and Executable: do not close
// them.
type CompiledStep struct {
	stepAccess

	// Name is the name of the step function.
	Name string
	// Module is the step that was passed to the compiler.
	Module *spmd.Module
	// Program is the compiled program, with its memory, its cost and its text.
	Program *pjrt.Executable
	// Executable is the program on the devices. It is nil ahead of time.
	Executable *pjrt.LoadedExecutable
	// Variables reports for each of Module.Arguments whether it is a variable.
	Variables []bool
	// Assignment is the device assignment that the program was compiled for.
	Assignment tpu.DeviceAssignment
	// Lowering is the time for tracing and lowering. Compiling is the time of the plugin's
	// compiler.
	Lowering, Compiling time.Duration
	// Arriving is the time for copying the variables' values to the devices, including the
	// computation of initial values (see [Variables.FirstValues]). It is 0 if the step was compiled
	// without running.
	Arriving time.Duration

	program *program
}

// compiled describes the program.
func (p *program) compiled() *CompiledStep {
	s := p.function.strategy
	c := &CompiledStep{
		Name: p.function.opts.Name, Module: p.module, Executable: system.UnwrapExecutable(p.executable),
		Assignment: s.assignment,
		Lowering:   p.lowering, Arriving: p.initializing, Compiling: p.compiling, program: p,
		Program: pjrtExecutable(p.executable),
	}
	c.stepAccess = engine.NewAccess(internalStep{c})
	for i, v := range p.variables {
		c.Variables = append(c.Variables, v != nil && !p.module.Arguments[i].IsConstant)
	}
	return c
}

// Report returns the static analysis of the step: memory, shardings, collectives and estimated
// cost. The report is plain data and remains valid after the strategy is closed. The call takes
// milliseconds.
func (c *CompiledStep) Report() (*report.Report, error) {
	if c.Program == nil {
		return nil, c.notGiven("report")
	}
	return report.New(c.input())
}

func (c *CompiledStep) input() report.Input {
	s := c.program.function.strategy
	return report.Input{
		Step: c.Name, Target: s.reportTarget(), Replicas: s.replicas, LogicalDevices: s.logicalDevices,
		Program: c.Program, Module: c.Module, Variables: c.Variables, Parameters: c.program.parameters(),
		LoweringSeconds: c.Lowering.Seconds(), CompilingSeconds: c.Compiling.Seconds(), Settings: c.program.settings(),
	}
}

// settings returns the options of the step that its module does not contain.
func (p *program) settings() report.Settings {
	s := report.Settings{Microbatches: p.function.microbatches, LeastRows: 1}
	if slices.Contains(p.ragged, true) {
		s.LeastRows = 2 // a single row cannot be padded
	}
	for _, v := range p.variables {
		if v != nil && v.trainable {
			state, _ := p.function.strategy.opts.Variables.StateFor(v.path, v.shape)
			s.StateSharding = max(s.StateSharding, state)
		}
	}
	return s
}

// prober is a [pjrt.Compiler] that can stop a compilation at an earlier stage, which is much
// faster. Package pjrt/worker has one.
type prober interface {
	Probe(ctx context.Context, topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions,
		stage pjrt.Stage) ([]byte, error)
}

// SuggestAnnotations searches for annotations of variables, arguments and values that remove
// collectives over the logical devices; see [report.SuggestAnnotations] for the search, its cost
// and its errors. It uses the target and the compiler of the strategy, unless o sets others. A
// Compiler of package pjrt/worker compiles each step only as far as the search requires, which
// takes seconds. Call SuggestAnnotations before the step runs, because the traced step is dropped
// then. It does not change the step.
func (c *CompiledStep) SuggestAnnotations(ctx context.Context,
	o report.AnnotationOptions) (*report.AnnotationSuggestions, error) {
	s := c.program.function.strategy
	if err := s.requireEager(ctx, c.Name, fault.InsteadOfRunning); err != nil {
		return nil, err
	}
	if o.Target.Name == "" {
		o.Target = s.reportTarget()
	}
	if o.Try == nil {
		o.Try = c.try
	}
	return report.SuggestAnnotations(ctx, c.Module, o)
}

// try compiles a variant of the step, as far as needed to find its collectives.
func (c *CompiledStep) try(ctx context.Context, m *spmd.Module) (pjrt.Program, error) {
	s := c.program.function.strategy
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
		return pjrt.Program{}, c.notGiven("suggest annotations")
	}
	return made.OptimizedProgram()
}

// pjrtExecutable returns the statistics of a compiled program, or nil if the runtime has none.
func pjrtExecutable(x system.Executable) *pjrt.Executable {
	if offline, ok := x.(engine.OfflineProgram); ok {
		return offline.Executable
	}
	if loaded := system.UnwrapExecutable(x); loaded != nil {
		return loaded.Executable()
	}
	return nil
}

func (c *CompiledStep) notGiven(op string) error {
	return &errkind.Fault{Op: "strategy: " + op, Subject: c.Name, Reason: "the runtime gives no compiled program",
		Hint: "open devices of a PJRT plugin", Class: errkind.NotImplementedError}
}

// refused returns a [*MemoryError] with a report if the program does not fit into memory, otherwise
// err.
func (p *program) refused(err error) error {
	refusal := report.RefusalOf(err)
	if refusal == nil {
		return err
	}
	c := p.compiled()
	e, in := memoryError(c.Name, c.Module, refusal, err), c.input()
	in.Refused = refusal
	e.Report, _ = report.New(in) // nil if a sharding cannot be described: the error is more important
	return e
}

// parameters counts the elements of the trainable variables of the step.
func (p *program) parameters() (n int64) {
	for _, v := range p.variables {
		if v != nil && v.trainable {
			n += int64(shapes.Make(v.dtype, v.shape...).Size())
		}
	}
	return n
}

func (s *TPUStrategy) reportTarget() report.Target {
	if s.slice != nil {
		return report.TargetOf(s.slice.Info())
	}
	sys := s.runtime.System
	topology := sys.Topology()
	t := report.Target{Name: topology.Name(), Devices: topology.NumDevices(), Hosts: topology.NumTasks()}
	if t.Name == "" || sys.Platform() == "cpu" {
		t.Name = sys.Platform()
	}
	if client := sys.Client(); client != nil {
		t.Platform = client.PlatformVersion()
	}
	t.Kind = s.runtime.All[0].Kind()
	if g, ok := tpu.GenerationForDeviceKind(t.Kind); ok {
		perChip := float64(g.DevicesPerChip)
		t.PeakFLOPS, t.HBMBandwidth = g.PeakFLOPS/perChip, g.HBMBandwidth/perChip
	}
	return t
}
