// Package lowering converts GoMLX graphs to StableHLO text.
//
// # Overview
//
// GoMLX builds a graph by calling the methods of a compute.Function of a compute.Backend, one call
// per op. The [Backend] of this package adds each op to a StableHLO module and runs nothing. A
// program consists of values of package [github.com/tpustrategy/tpustrategy/lowering/ir] until
// [Program.Text] writes its text. The StableHLO builder of go-xla infers the shapes of results and
// checks operands; its statements are converted to these values (take.go).
//
//	backend := lowering.New(lowering.Options{Target: lowering.TargetTPU})
//	g := graph.NewGraph(backend, "step")
//	... // ops, gradients, layers, optimizers
//	g.Compile(outputs...)
//	program := g.Executable().(*lowering.Executable).Program()
//	text, err := program.Text()
//
// The package is pure Go and needs neither a device nor a plugin, so it can lower a program on any
// computer.
//
// # Determinism
//
// The same graph is lowered to the same bytes in every process. The hosts of one job compile their
// program separately and must agree on it.
//
// # Extension points
//
// Options.Identity emits the ops for the Identity op. graph.IdentityWithCustomGradient calls it and
// reads the shape of its node from the result. Annotations, collectives and other ops with a custom
// gradient are added this way, without a change to GoMLX. [Function.AddPlaceholder] adds a
// statement that the caller must replace by other ops when the program is complete.
//
// Options.Compile converts the finished [Program] to an executable. Package gomlx compiles the
// program for a PJRT device.
//
// # Differences between compilers
//
// Options.Target and Options.Precision select everything that is written differently for a
// compiler. The name of a plugin has no effect.
//
// # Limits
//
// Shapes are static. Fused ops and the 8-bit and 4-bit floating-point types are not lowered. GoMLX
// uses unfused ops instead.
package lowering
