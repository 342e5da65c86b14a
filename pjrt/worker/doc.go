// Package worker compiles programs in separate processes. If a compiler crashes, is killed because
// memory runs out, or hangs, the result is an error, and the calling process continues.
//
//	func main() {
//		command := worker.Main() // must be called first; does not return in a worker
//		...
//		compiler, err := worker.New(worker.Options{Command: command, Timeout: 10 * time.Minute})
//		strat, err := strategy.New(sys, strategy.Options{Compiler: compiler})
//
// A [Compiler] can be passed to a strategy, also for compilation ahead of time, and to a cache of
// compiled programs (see cache.Options). It accepts untrusted programs as text, bytecode or HLO
// protos; compilers of the calling process accept only trusted ones.
//
// A worker does not make the execution of a program safe, because the program runs in the process
// that loads it. For example, an unstable sort whose comparator is true for equal elements, or a
// transform with a length that differs from its axis, reads memory outside its operand, and an
// infeed waits forever.
//
// # Workers
//
// Each compilation starts a process, which opens the plugin, compiles the program, returns it in
// serialized form and exits. The parent process loads it. A compilation costs some additional
// tenths of a second and, while it runs, the memory of a second compiler. [Options].MaxWorkers
// limits the number of workers that run at the same time.
//
// [Options].Command is the program of the workers. The result of [Main] is the current program,
// which must call Main at the start of its main function. Without a Command, workers run
// `tpustrategy compile-worker` from $PATH.
//
// A worker exits when its parent exits or when the context of the compilation ends. If memory runs
// out, the kernel kills workers before other processes.
//
// # Probes and transforms
//
// [Compiler.CompileUntil] stops a compilation after partitioning, fusion or scheduling and returns
// the program, in a few percent of the time of a complete compilation. A [pjrt.Transform] changes
// the program of complete compilations. The program of the worker must contain the transform:
//
//	command := worker.Main(pass)
//	compiler, err := worker.New(worker.Options{Command: command, Transforms: []string{pass.Name}})
//
// # Devices
//
// For a TPU, the parent opens the devices, and the worker compiles for their topology. The XLA CPU
// plugin cannot compile for a topology, so the worker opens a client with the options of the parent's
// client. If the plugin cannot serialize or load programs, the error matches errors.ErrUnsupported.
//
// # Errors
//
// Errors of the compiler are as for [pjrt.Client.Compile]. An [*Error] reports that a worker exited
// without a result. It contains the exit status and the end of the worker's output.
package worker
