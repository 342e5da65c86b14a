package pjrt

import "context"

// Compiler compiles and loads programs in a client's place: a cache of compiled programs (package
// pjrt/cache), or a compiler in a process of its own (package pjrt/worker).
type Compiler interface {
	Compile(ctx context.Context, client *Client, program Program, opts CompileOptions) (*LoadedExecutable, error)
}

// TopologyCompiler is a [Compiler] that compiles for topologies that are not here, too, such as that
// of package pjrt/worker.
type TopologyCompiler interface {
	CompileTopology(ctx context.Context, topology *Topology, program Program, opts CompileOptions) (*Executable, error)
}
