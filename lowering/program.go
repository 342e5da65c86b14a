package lowering

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/go-xla/stablehlo"
)

// Program is a finished computation: what Builder.Compile hands to Options.Compile.
type Program struct {
	// Name is the name given to Backend.Builder.
	Name string

	// Builder and Main are the StableHLO module and its entry function. Whoever compiles the program
	// may still change them, for instance to add attributes to Main's inputs.
	Builder *stablehlo.Builder
	Main    *stablehlo.Function

	// ParameterNames are the names as given to Function.Parameter, in order. The text has other
	// names where these are no MLIR identifiers.
	ParameterNames []string

	// Parameters and Outputs are the shapes of Main's arguments and results, in order.
	Parameters, Outputs []shapes.Shape

	// Replicas and Partitions are what DistributedSPMD and DistributedAutoSharding asked for, 1 each
	// without them. Their product is the number of devices.
	Replicas, Partitions int

	// Devices is the device assignment, replica by replica; nil if none was asked for.
	Devices []compute.DeviceNum

	functions []*stablehlo.Function // the top-level ones
}

// Text returns the module as MLIR text. It writes the module anew on each call; the same graph gives
// the same bytes.
func (p *Program) Text() ([]byte, error) {
	var text bytes.Buffer
	// Write and not Build: Build refuses closures that an op began and gave up, which are never written.
	if err := p.Builder.Write(&text); err != nil {
		return nil, fmt.Errorf("lowering: writing program %q: %w", p.Name, err)
	}
	return text.Bytes(), nil
}

// Lowered is the compute.Executable of a Backend made without Options.Compile: it carries the program
// for someone else to run.
type Lowered struct {
	program *Program
}

var _ compute.Executable = (*Lowered)(nil)

// Program returns the lowered program.
func (l *Lowered) Program() *Program { return l.program }

// Finalize does nothing: a Lowered holds no resources.
func (l *Lowered) Finalize() {}

// Inputs returns the names and shapes of the parameters, in order.
func (l *Lowered) Inputs() (names []string, inputShapes []shapes.Shape) {
	return slices.Clone(l.program.ParameterNames), slices.Clone(l.program.Parameters)
}

// Outputs returns the shapes of the results, in order.
func (l *Lowered) Outputs() []shapes.Shape { return slices.Clone(l.program.Outputs) }

// Execute returns an error matching ErrNotExecutable.
func (l *Lowered) Execute([]compute.Buffer, []bool, compute.DeviceNum) ([]compute.Buffer, error) {
	return nil, fmt.Errorf("%w (program %q)", ErrNotExecutable, l.program.Name)
}
