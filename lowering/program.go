package lowering

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
)

// Program is a finished computation, which Builder.Compile passes to Options.Compile.
type Program struct {
	// Name is the name given to Backend.Builder.
	Name string

	// Module is the program. Its first function is the entry function. Options.Compile may change
	// the module, for instance add attributes to the entry function's parameters.
	Module *ir.Module

	// ParameterNames are the names passed to Function.Parameter, in order. The text uses other
	// names where these are not MLIR identifiers.
	ParameterNames []string

	// Parameters and Outputs are the shapes of Main's arguments and results, in order.
	Parameters, Outputs []shapes.Shape

	// Shards are the shapes of the parameters on each device: the shapes in Parameters, except for
	// parameters that DistributedAutoSharding splits.
	Shards []shapes.Shape

	// Replicas and Partitions are the numbers requested by DistributedSPMD and
	// DistributedAutoSharding, 1 each without these calls. Their product is the number of devices.
	Replicas, Partitions int

	// Devices is the device assignment in replica order, nil if none was requested.
	Devices []compute.DeviceNum

	// Target is the compiler that the program was lowered for.
	Target Target

	// Constants describes the last parameters, which replace large constants.
	Constants []Constant
}

// Main returns the entry function.
func (p *Program) Main() *ir.Function { return p.Module.Functions[0] }

// Text returns the module as MLIR text. Each call writes the text again; the same graph returns the
// same bytes. Text returns an error for a program that would abort a compiler's process, see
// [Program.Check].
func (p *Program) Text() ([]byte, error) {
	if err := p.Check(p.Partitions); err != nil {
		return nil, err
	}
	text, _, err := p.Module.Text()
	if err != nil {
		return nil, &errkind.Fault{Op: "lowering: write", Subject: fmt.Sprintf("program %q", p.Name), Class: errkind.InternalError, Err: err}
	}
	return text, nil
}

// Check returns an error for a program that would abort a compiler's process when it is compiled
// for the given number of partitions: tensors and paddings too large to address, excessive
// dilations or nesting, and on TPUs divided tensors of Complex128. [Program.Text] calls it with the
// program's own number of partitions.
func (p *Program) Check(partitions int) error {
	l := limits{simple: p.Target == TargetTPU && partitions > 1}
	for _, f := range p.Module.Functions {
		l.function(f)
	}
	return l.err
}

// Executable is the [compute.Executable] of a Backend without Options.Compile. It contains the
// program and cannot run it.
type Executable struct {
	program *Program
}

var _ compute.Executable = (*Executable)(nil)

// Program returns the lowered program.
func (l *Executable) Program() *Program { return l.program }

// Finalize does nothing: an Executable holds no resources.
func (l *Executable) Finalize() {}

// Inputs returns the names and shapes of the parameters, in order.
func (l *Executable) Inputs() (names []string, inputShapes []shapes.Shape) {
	return slices.Clone(l.program.ParameterNames), slices.Clone(l.program.Parameters)
}

// Outputs returns the shapes of the results, in order.
func (l *Executable) Outputs() []shapes.Shape { return slices.Clone(l.program.Outputs) }

// Execute returns an error matching ErrNotExecutable.
func (l *Executable) Execute([]compute.Buffer, []bool, compute.DeviceNum) ([]compute.Buffer, error) {
	return nil, &errkind.Fault{Match: ErrNotExecutable, Subject: fmt.Sprintf("(program %q)", l.program.Name)}
}
