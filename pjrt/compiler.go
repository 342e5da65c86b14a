package pjrt

import "context"

// Compiler compiles programs for a client and loads them. Package pjrt/cache implements it as a
// cache of compiled programs, and package pjrt/worker as a compiler in a separate process.
type Compiler interface {
	Compile(ctx context.Context, client *Client, program Program, opts CompileOptions) (*LoadedExecutable, error)
}

// TopologyCompiler is a [Compiler] that can also compile for a topology whose devices are not
// available, such as the compiler of package pjrt/worker.
type TopologyCompiler interface {
	CompileTopology(ctx context.Context, topology *Topology, program Program, opts CompileOptions) (*Executable, error)
}
