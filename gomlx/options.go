package gomlx

import (
	"io"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Options configures a Backend. The zero value shards batches over all devices and replicates
// variables.
type Options struct {
	// Name is the backend's short name; [BackendName] if empty.
	Name string
	// LogicalDevices is P, the number of logical devices of a replica; 0 is 1, or the product of
	// Axes. The number R of replicas is the number of devices divided by P.
	LogicalDevices int
	// Axes are the axes of a replica's logical devices, major to minor; see logical.NewMesh.
	Axes []sharding.Axis
	// Rules specify the sharding of variables by their paths; see [logical.BuiltinRules] and
	// [logical.ReadRules].
	Rules logical.Rules
	// RulesName is the file or the built-in set of Rules, for error messages; it may be empty.
	RulesName string
	// Target is the target of lowering. Nil selects lowering.TargetCPU if the platform is "cpu",
	// and lowering.TargetTPU otherwise.
	Target *lowering.Target
	// Precision is the precision of every dot_general and convolution.
	Precision lowering.Precision
	// Random is the generator of random bits.
	Random lowering.Random
	// Compiler compiles programs instead of the system's runtime. Examples are a cache of compiled
	// programs (package pjrt/cache) and a separate process (package pjrt/worker). Nil selects the
	// runtime.
	Compiler pjrt.Compiler
	// Worker is the command of the process that compiles ahead of time, as returned by worker.Main
	// of package pjrt/worker. Nil selects `tpustrategy compile-worker` if it is on $PATH, and
	// otherwise this process.
	Worker []string
	// Explain, if not nil, is called once for each program that is compiled, with its shardings,
	// memory and collectives.
	Explain func(*Explanation)
	// Log receives warnings, such as that a rule matches no variable, and with explain=1 the
	// explanations. Nil discards them, except that NewFromConfig uses standard error. On a
	// terminal, NewFromConfig adds empty lines for the table of GoMLX's progress bar.
	Log io.Writer
	// OnAheadOfTime, if not nil, is called once by a backend that compiles ahead of time, before it
	// returns the error. The backend registered as [BackendName] uses [Exit], which exits the
	// process.
	OnAheadOfTime func(*AheadOfTimeError)
	// OnCompiled, if not nil, is called with each program that was compiled for the mesh. Calls may
	// be concurrent.
	OnCompiled func(*CompiledProgram)
}

func (o Options) backendName() string {
	if o.Name == "" {
		return BackendName
	}
	return o.Name
}

// devicesPerReplica returns the number of devices of a replica, at least 1.
func (o Options) devicesPerReplica() int {
	size := 1
	for _, axis := range o.Axes {
		size *= max(axis.Size, 1)
	}
	return max(size, o.LogicalDevices)
}

// CompiledProgram is a program that was compiled for the mesh of the backend. The backend owns its
// contents: do not close them.
type CompiledProgram struct {
	// Module is the program that was passed to the compiler, with the layouts of its arguments and
	// results, including the layouts that the partitioner chose.
	Module *spmd.Module
	// Placements are the placements of the arguments, with their reasons.
	Placements []logical.ExplainedSpec
	// Program is the compiled program, with its memory, cost and text. It is nil if the runtime
	// does not provide it.
	Program *pjrt.Executable
}
