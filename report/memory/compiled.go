package memory

import (
	"time"

	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// CompiledStep contains the results of compiling a step.
type CompiledStep struct {
	// Name is the name of the step function.
	Name string
	// Target describes the slice, or the devices of another platform, such as "cpu".
	Target system.SliceInfo
	// Replicas and LogicalDevices are the numbers of the strategy.
	Replicas, LogicalDevices int
	// Module is the step that was passed to the compiler.
	Module *spmd.Module
	// Program is the compiled program, with its memory, its cost and its text. It is nil if the
	// compiler rejected the step.
	Program *pjrt.Executable
	// Refusal is the compiler's error for a step that does not fit into the memory of a device. It
	// is nil for other steps.
	Refusal *Refusal
	// Variables reports for each of Module.Arguments whether it is a variable.
	Variables []bool
	// Parameters is the number of elements of the trainable variables.
	Parameters int64
	// Settings are the options of the step that Module does not contain.
	Settings Settings
	// Lowering is the time for tracing and lowering. Compiling is the time of the plugin's
	// compiler.
	Lowering, Compiling time.Duration
}

// Compiled returns c. Package report accepts all types with this method, so a type can embed a
// CompiledStep to support reports.
func (c *CompiledStep) Compiled() *CompiledStep { return c }
