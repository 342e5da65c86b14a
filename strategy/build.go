package strategy

import (
	"context"
	"fmt"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Compiler compiles and loads programs in the place of the system's client: a cache of compiled
// programs (package pjrt/cache), or a compiler in a process of its own (package pjrt/worker). It is
// used where the system has a client. The context ends when the strategy is closed.
type Compiler interface {
	Compile(ctx context.Context, client *pjrt.Client, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.LoadedExecutable, error)
}

// TopologyCompiler is a [Compiler] that compiles ahead of time, too, such as that of package
// pjrt/worker.
type TopologyCompiler interface {
	CompileTopology(ctx context.Context, topology *pjrt.Topology, program pjrt.Program, opts pjrt.CompileOptions) (*pjrt.Executable, error)
}

// Compilation describes a compilation that is under way, for [Options.Compiling].
type Compilation struct {
	// Name is the name of the step function.
	Name string
	// TextBytes is the size of the step's StableHLO text.
	TextBytes int
	// Replicas and LogicalDevices are the numbers that the step is compiled for.
	Replicas, LogicalDevices int
	// Passed is the time since the compiler began.
	Passed time.Duration
}

// String describes the compilation in one line, for a person.
func (c Compilation) String() string {
	size := fmt.Sprintf("%.1f kB", float64(c.TextBytes)/1e3)
	if c.TextBytes >= 1e6 {
		size = fmt.Sprintf("%.1f MB", float64(c.TextBytes)/1e6)
	}
	return fmt.Sprintf("compiling %s for %d x %d devices goes on: %s so far, %s of program",
		c.Name, c.Replicas, c.LogicalDevices, c.Passed.Round(time.Second), size)
}

// goesOn returns what is told of compilations that take long, or nil.
func (o *Options) goesOn() func(mesh.Compilation) {
	switch {
	case o.Compiling != nil:
		return func(c mesh.Compilation) { o.Compiling(Compilation(c)) }
	case o.Logger != nil:
		return func(c mesh.Compilation) {
			o.Logger.Info("strategy: a compilation goes on", "step", c.Name, "passed", c.Passed.Round(time.Second),
				"text_bytes", c.TextBytes, "replicas", c.Replicas, "logical_devices", c.LogicalDevices)
		}
	}
	return nil
}
