// Package worker compiles programs in processes of their own. A compiler that aborts, that the
// kernel kills for its memory, or that does not come back is then an error, and the program that
// asked goes on.
//
//	func main() {
//		command := worker.Main() // first: in a worker it does not return
//		...
//		compiler, err := worker.New(worker.Options{Command: command, Timeout: 10 * time.Minute})
//		strat, err := strategy.New(sys, strategy.Options{Compiler: compiler})
//
// A [Compiler] can stand where a strategy compiles, on an open system and ahead of time, and behind
// a cache of compiled programs (see cache.Options). It takes programs of any origin, as text,
// bytecode or HLO protos, which the compilers of a process take only if they are trusted.
//
// A worker guards the compilation: what a program does when it runs, it does in the process that
// loads it. A sort that is not stable by a comparator that holds for equal elements, or a transform
// of another length than its axis, reads past its operand's end there, and an infeed waits for ever.
//
// # Workers
//
// Each compilation starts a process, which opens the plugin, compiles, hands the program back in
// its serialized form, and ends. The parent loads it. This costs the start of a process and of the
// plugin (some tenths of a second) and the compilers' memory twice for as long as it takes. Any
// number may run side by side; [Options].Parallel bounds them.
//
// Which program the workers run is [Options].Command. [Main] gives this program itself, which needs
// the call at the start of main: without it the worker would be a second run of the whole program.
// Without a Command it is `tpustrategy compile-worker`, from $PATH, for programs whose main is not
// their own.
//
// A worker ends with its parent, however that ends, and as soon as the context of the compilation
// does. It asks the kernel to be the first to go when memory runs out.
//
// # Probes and transforms
//
// [Compiler.Probe] ends a compilation where the program is partitioned, fused and scheduled, and
// returns it: what a compiler would make of a step, for a few hundredths of the time. A pass of
// one's own in whole compilations is a [pjrt.Transform] that the worker's program has:
//
//	command := worker.Main(pass)
//	compiler, err := worker.New(worker.Options{Command: command, Transforms: []string{pass.Name}})
//
// # Devices
//
// On a TPU the parent holds the devices, and the worker compiles for their description. The XLA CPU
// plugin has no such compiler: there the worker opens a client with the parent's options. A plugin
// that cannot serialize programs, or not load them, gives an error that matches
// errors.ErrUnsupported.
//
// # Errors
//
// What the compiler answers are the errors of [pjrt.Client.Compile]. An [*Error] says how a worker
// ended that gave no answer, and the end of what it wrote.
package worker
