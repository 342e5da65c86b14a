package strategy

import (
	"time"

	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// CompiledStep describes a compiled step. Program and Executable stay the strategy's: do not close
// them.
type CompiledStep struct {
	// Name is the name of the step function.
	Name string
	// Module is the step as it was given to the compiler.
	Module *spmd.Module
	// Program is the compiled program: its memory, its cost and its text.
	Program *pjrt.Executable
	// Executable is the program on the devices; nil ahead of time.
	Executable *pjrt.LoadedExecutable
	// Variables says which of Module.Arguments are variables.
	Variables []bool
	// Assignment is the device assignment that the program was compiled for.
	Assignment tpu.DeviceAssignment
	// Lowering is the time that tracing and lowering took, Compiling the time of the plugin's
	// compiler.
	Lowering, Compiling time.Duration
	// Arriving is the time that bringing the variables' values to the devices took, with the making
	// of first values (see [Variables.FirstValues]). It happens while a step that is to run is
	// compiled. It is 0 for a step that is only compiled.
	Arriving time.Duration

	program *program
}

// compiled describes the program.
func (p *program) compiled() *CompiledStep {
	s := p.function.strategy
	c := &CompiledStep{
		Name: p.function.opts.Name, Module: p.module, Executable: system.Loaded(p.executable), Assignment: s.assignment,
		Lowering: p.lowering, Arriving: p.arriving, Compiling: p.compiling, program: p,
	}
	if x, ok := p.executable.(mesh.OfflineProgram); ok {
		c.Program = x.Executable
	} else if c.Executable != nil {
		c.Program = c.Executable.Executable()
	}
	for _, v := range p.variables {
		c.Variables = append(c.Variables, v != nil)
	}
	return c
}

// Report returns what is known of the step before it runs: memory, shardings, collectives and the
// estimate of its cost. It is plain data and outlives the strategy. The call takes milliseconds.
func (c *CompiledStep) Report() (*report.Report, error) {
	if c.Program == nil {
		return nil, &errkind.Fault{Op: "strategy: report", Subject: c.Name, Reason: "the runtime gives no compiled program",
			Hint: "open devices of a PJRT plugin", Class: NotImplementedError}
	}
	return report.New(c.input())
}

// input is what a report is made from.
func (c *CompiledStep) input() report.Input {
	s := c.program.function.strategy
	return report.Input{
		Step: c.Name, Target: s.reportTarget(), Replicas: s.replicas, LogicalDevices: s.logicalDevices,
		Program: c.Program, Module: c.Module, Variables: c.Variables, Parameters: c.program.parameters(),
		LoweringSeconds: c.Lowering.Seconds(), CompilingSeconds: c.Compiling.Seconds(),
	}
}

// refused makes the compiler's error one that has a report, if the program does not fit.
func (p *program) refused(err error) error {
	refusal := report.RefusalOf(err)
	if refusal == nil {
		return err
	}
	c := p.compiled()
	e, in := memoryError(c.Name, c.Module, refusal, err), c.input()
	in.Refused = refusal
	e.Report, _ = report.New(in) // nil if a sharding of it has no words: the error counts
	return e
}

// parameters counts the elements of the trainable variables that the step takes.
func (p *program) parameters() (n int64) {
	for _, v := range p.variables {
		if v != nil && v.trainable {
			n += int64(shapes.Make(v.dtype, v.shape...).Size())
		}
	}
	return n
}

// reportTarget describes what the strategy compiles for.
func (s *TPUStrategy) reportTarget() report.Target {
	if s.slice != nil {
		return report.TargetOf(s.slice.Facts())
	}
	sys := s.machine.System
	topology := sys.Topology()
	t := report.Target{Name: topology.Name(), Devices: topology.NumDevices(), Hosts: topology.NumTasks()}
	if t.Name == "" || sys.Platform() == "cpu" {
		t.Name = sys.Platform()
	}
	if client := sys.Client(); client != nil {
		t.Platform = client.PlatformVersion()
	}
	t.Kind = s.machine.All[0].Kind()
	if g, ok := tpu.GenerationOfKind(t.Kind); ok {
		perChip := float64(g.DevicesPerChip)
		t.PeakFLOPS, t.HBMBandwidth = g.PeakFLOPS/perChip, g.HBMBandwidth/perChip
	}
	return t
}
