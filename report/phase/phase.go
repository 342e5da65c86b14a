package phase

import "github.com/tpustrategy/tpustrategy/internal/enum"

// Stage is a stage of building a program.
type Stage int

const (
	// Tracing calls the function of a step and builds its graph, including gradients.
	Tracing Stage = iota
	// Lowering writes the graph as StableHLO text.
	Lowering
	// Compiling compiles the text, or loads its program from a cache.
	Compiling
	// Done means that the program is available, or that building it failed.
	Done
)

// String returns the stage as a word, such as "tracing".
func (s Stage) String() string { return enum.Name(s, "tracing", "lowering", "compiling", "done") }

// Phase is the progress of building a program.
type Phase struct {
	// Name is the name of the program, such as the name of the step function.
	Name string
	// Stage is the stage that starts.
	Stage Stage
	// Target is the name of the target: a slice, such as "v5e:4x4", or the platform.
	Target string
	// Replicas and LogicalDevices are the numbers that the program is compiled for.
	Replicas, LogicalDevices int
	// TextBytes is the size of the program's StableHLO text; 0 before Compiling.
	TextBytes int
	// Err is the error of a failed program at stage Done, and nil otherwise.
	Err error
}
