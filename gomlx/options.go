package gomlx

import (
	"io"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Options configures a Backend. The zero value splits batches over all devices and keeps variables
// whole on each.
type Options struct {
	// Name is the backend's short name; [Name] if empty.
	Name string
	// Logical is P, the number of logical devices of a replica; 0 is 1, or the product of Axes. The
	// other devices make R replicas.
	Logical int
	// Axes name the axes of a replica's logical devices, the slowest first; see logical.Mesh.
	Axes []sharding.Axis
	// Rules say how variables are laid out, by their paths; see [logical.BuiltinRules] and
	// [logical.ReadRules]. They name axes.
	Rules logical.Rules
	// RulesName is the file or the set that Rules came from, for errors; it may be empty.
	RulesName string
	// Target is what programs are written for. Nil takes lowering.TargetCPU where the platform is
	// "cpu", and lowering.TargetTPU elsewhere.
	Target *lowering.Target
	// Precision is written on every dot_general and convolution.
	Precision lowering.Precision
	// Random is the generator of random bits.
	Random lowering.Random
	// Compiler compiles programs in the place of the system's runtime: a cache of compiled programs
	// (package pjrt/cache), or a process of its own (package pjrt/worker). Nil is the runtime.
	Compiler pjrt.Compiler
	// Worker is the command of a process that compiles ahead of time, as worker.Main of package
	// pjrt/worker returns it. Nil is `tpustrategy compile-worker` if that is on $PATH, and otherwise
	// this process.
	Worker []string
	// Explain is called once for each program, as it is compiled, with how its tensors are split and
	// why, and what the compiled program moves and needs. Nil is nobody.
	Explain func(*Explanation)
	// Notes receives lines that are no errors and may surprise, such as that a rule reaches no variable,
	// and with explain=1 the explanations. Nil discards them; NewFromConfig takes standard error then,
	// and on a terminal leaves room below them for the table of GoMLX's progress bar.
	Notes io.Writer
	// Stopped is called with what ends the work of a backend that compiles ahead of time, before the
	// error is returned. Nil is nobody; [Exit], which the backend of [Name] has, ends the process.
	Stopped func(*AheadOfTimeError)
	// Compiled, if it is set, is called with each program once it is compiled for the mesh. It may be
	// called from several goroutines at once.
	Compiled func(*CompiledProgram)
}

// name returns the backend's short name.
func (o Options) name() string {
	if o.Name == "" {
		return Name
	}
	return o.Name
}

// replica returns the number of devices of a replica, at least 1.
func (o Options) replica() int {
	size := 1
	for _, axis := range o.Axes {
		size *= max(axis.Size, 1)
	}
	return max(size, o.Logical)
}

// CompiledProgram is a program that was compiled for the mesh. What it refers to stays the
// backend's: do not close it.
type CompiledProgram struct {
	// Module is the program as it was given to the compiler, with the layouts of its arguments and
	// of its results, also of those that the partitioner chose.
	Module *spmd.Module
	// Placements say why each argument lies as it does.
	Placements []logical.Placement
	// Program is what the compiler made: its memory, its cost and its text. It is nil over a
	// runtime that has none.
	Program *pjrt.Executable
}
