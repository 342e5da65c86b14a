package phase

import "github.com/tpustrategy/tpustrategy/internal/enum"

// Stage is a stage in the making of a program.
type Stage int

const (
	// Tracing calls the function of a step and builds its graph, gradients included.
	Tracing Stage = iota
	// Lowering writes the graph as StableHLO text.
	Lowering
	// Compiling compiles the text, or loads its program from a cache.
	Compiling
	// Done says that the program is there, or that there will be none.
	Done
)

// String returns the stage as a word, such as "tracing".
func (s Stage) String() string { return enum.Name(s, "tracing", "lowering", "compiling", "done") }

// Phase says which stage the making of a program has come to.
type Phase struct {
	// Name is the program's, such as that of the step function.
	Name string
	// Stage is the stage that begins.
	Stage Stage
	// Target is the name of what is compiled for: a slice's, such as "v5e:4x4", or the platform's.
	Target string
	// Replicas and LogicalDevices are the numbers that the program is compiled for.
	Replicas, LogicalDevices int
	// TextBytes is the size of the program's StableHLO text; 0 before Compiling.
	TextBytes int
	// Err says at Done why there is no program; nil if there is one.
	Err error
}
