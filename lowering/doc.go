// Package lowering turns GoMLX graphs into StableHLO text.
//
// # What it is
//
// GoMLX builds a graph by calling, op by op, the methods of a compute.Function that a
// compute.Backend made. The Backend here writes each op into a StableHLO module instead of running
// anything. A program is values of package [github.com/tpustrategy/tpustrategy/lowering/ir] until
// [Program.Text] writes its text. The StableHLO builder of go-xla works out the shapes of results
// and checks operands; each of its statements is taken over as a value (take.go).
//
//	backend := lowering.New(lowering.Options{Target: lowering.TargetTPU})
//	g := graph.NewGraph(backend, "step")
//	... // ops, gradients, layers, optimizers
//	g.Compile(outputs...)
//	program := g.Executable().(*lowering.Executable).Program()
//	text, err := program.Text()
//
// It is pure Go, holds no device and loads no plugin, so a program can be made on any machine.
//
// # Determinism
//
// The same graph yields the same bytes, whatever process builds it: hosts of one job compile their
// program separately and must agree.
//
// # Seams
//
// Options.Identity emits what stands for the Identity op. graph.IdentityWithCustomGradient calls
// it, and takes the shape of its node from the result, so that annotations, collectives and
// anything else with a gradient of its own come in there, without a change to GoMLX.
// [Function.Mark] adds a statement that carries a value of the caller's until the whole program is
// known.
//
// Options.Compile takes the finished Program and returns what runs it; package gomlx
// does so on a PJRT device.
//
// # Differences between compilers
//
// Options.Target and Options.Precision say what is to be written differently; nothing is guessed
// from the name of a plugin.
//
// # Limits
//
// Shapes are static. Fused ops and the 8-bit and 4-bit floating-point types are left out: GoMLX
// falls back to unfused ops by itself.
package lowering
