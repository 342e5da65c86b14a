package report

import (
	"context"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report/memory"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// CompiledStep is a compiled step, such as a *strategy.CompiledStep.
type CompiledStep interface {
	// Compiled returns the result of compiling the step.
	Compiled() *memory.CompiledStep
	// CompileVariant compiles a module as far as its collectives require, and returns the
	// partitioned or the optimized program.
	CompileVariant(ctx context.Context, m *spmd.Module) (pjrt.Program, error)
}

// Of returns the report of a compiled step, or of the step of a strategy.MemoryError. The report
// remains valid after the strategy is closed. Of takes milliseconds.
func Of(step CompiledStep) (*Report, error) {
	c := step.Compiled()
	if c.Program == nil && c.Refusal == nil {
		return nil, &errkind.Fault{Op: "report", Subject: c.Name, Reason: "the runtime does not provide the compiled program",
			Hint: "use the devices of a PJRT plugin", Class: errkind.NotImplementedError}
	}
	return New(Input{
		Step: c.Name, Target: TargetOf(c.Target), Replicas: c.Replicas, LogicalDevices: c.LogicalDevices, Program: c.Program, Refused: c.Refusal,
		Module: c.Module, Variables: c.Variables, Parameters: c.Parameters, Settings: c.Settings,
		LoweringSeconds: c.Lowering.Seconds(), CompilingSeconds: c.Compiling.Seconds(),
	})
}

// TargetOf returns the description of a slice as a target.
func TargetOf(facts system.SliceInfo) Target {
	return Target{
		Name: facts.Name, Kind: facts.Kind, Platform: facts.Plugin, Devices: facts.Devices, Chips: facts.Chips, Hosts: facts.Hosts,
		HBMBytes: facts.HBMBytes, PeakFLOPS: facts.PeakFLOPS, HBMBandwidth: facts.HBMBandwidth,
	}
}
