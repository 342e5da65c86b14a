package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Program is a finished computation. Builder.Compile passes it to Options.Compile.
type Program struct {
	// Name is the name given to Backend.Builder.
	Name string

	// Module contains the functions, the entry function first. Options.Compile may change the
	// module, for example add attributes to parameters.
	Module *ir.Module

	// ParameterNames are the names passed to Function.Parameter, in order. Names that are not MLIR
	// identifiers are different in the text.
	ParameterNames []string

	// Parameters and Outputs are the shapes of the entry function's arguments and results, in
	// order.
	Parameters, Outputs []shapes.Shape

	// Shards are the shapes of the parameters on each device. They differ from Parameters for
	// parameters that DistributedAutoSharding shards.
	Shards []shapes.Shape

	// Replicas and Partitions are set by DistributedSPMD and DistributedAutoSharding. Both are 1 by
	// default. Their product is the number of devices.
	Replicas, Partitions int

	// Devices is the device assignment in replica order, nil if none was requested.
	Devices []compute.DeviceNum

	// Target is the compiler that the program was lowered for.
	Target Target

	// Constants describes the parameters that replace large constants. They are the last
	// parameters.
	Constants []Constant
}

// Main returns the entry function.
func (p *Program) Main() *ir.Function { return p.Module.Functions[0] }

// Text returns the module as MLIR text. Each call writes the text again, and the same graph always
// has the same text. Text returns the error of [Program.Check].
func (p *Program) Text() ([]byte, error) {
	if err := p.Check(p.Partitions); err != nil {
		return nil, err
	}
	text, _, err := p.Module.Text()
	if err != nil {
		return nil, &errkind.Fault{Op: "lowering: write", Subject: fmt.Sprintf("program %q", p.Name),
			Class: errkind.InternalError, Err: err}
	}
	return text, nil
}

// Check returns an error if compiling the program for the given number of partitions would abort
// the compiler's process. The causes are tensors and paddings too large to address, excessive
// dilation or nesting, and, on TPUs, partitioned Complex128. [Program.Text] calls Check.
func (p *Program) Check(partitions int) error {
	l := limitChecker{rejectComplex128: p.Target == TargetTPU && partitions > 1}
	for _, f := range p.Module.Functions {
		l.checkFunction(f)
	}
	return l.err
}

// Executable is a [compute.Executable] that contains a program and cannot run it. A Backend without
// Options.Compile returns it.
type Executable struct {
	program *Program
}

var _ compute.Executable = (*Executable)(nil)

// Program returns the lowered program.
func (e *Executable) Program() *Program { return e.program }

// Finalize does nothing: an Executable holds no resources.
func (e *Executable) Finalize() {}

// Inputs returns the names and shapes of the parameters, in order.
func (e *Executable) Inputs() (names []string, inputShapes []shapes.Shape) {
	return slices.Clone(e.program.ParameterNames), slices.Clone(e.program.Parameters)
}

// Outputs returns the shapes of the results, in order.
func (e *Executable) Outputs() []shapes.Shape { return slices.Clone(e.program.Outputs) }

// Execute returns an error matching ErrNotExecutable.
func (e *Executable) Execute([]compute.Buffer, []bool, compute.DeviceNum) ([]compute.Buffer, error) {
	return nil, &errkind.Fault{Match: ErrNotExecutable, Subject: fmt.Sprintf("(program %q)", e.program.Name)}
}
