package pjrt

import "context"

// Compiler compiles programs for a client and loads them onto its devices. Package pjrt/cache
// provides a Compiler that caches compiled programs, and package pjrt/worker one that compiles in a
// separate process.
type Compiler interface {
	Compile(ctx context.Context, client *Client, program Program, opts CompileOptions) (*LoadedExecutable, error)
}

// TopologyCompiler is a [Compiler] that can also compile for a topology, whose devices do not have
// to be available. The compiler of package pjrt/worker is a TopologyCompiler.
type TopologyCompiler interface {
	CompileTopology(ctx context.Context, topology *Topology, program Program, opts CompileOptions) (*Executable, error)
}
