// Package aot adds flags to a program with which it compiles its training step for a slice of TPUs
// instead of running it, on any x86-64 machine. The report shows whether the step fits, how much
// memory it uses, and what it communicates.
//
//	func main() {
//		flags := aot.AddFlags(flag.CommandLine) // first: a process that compiles ends here
//		flag.Parse()
//		opts := strategy.Options{Replicas: flags.Replicas, LogicalDevices: flags.Logical, Variables: rules}
//		if flags.Requested() {
//			os.Exit(flags.Main(context.Background(), opts, build))
//		}
//		...
//	}
//
//	func build(strat *strategy.TPUStrategy) (aot.Step, []any, error) {
//		step, err := newStep(strat)
//		return step, []any{shapes.Make(dtypes.Float32, 32*strat.NumReplicasInSync(), 512)}, err
//	}
//
// The program then accepts
//
//	$ program -topology v5e:4x4 -logical 4
//	$ program -topology v5e:4x4,v5p-128 -logical 4 -report report.html -json
//
// and prints the same output as the command `tpustrategy compile`: the report as text or, with
// -json, one JSON value with the same names. The exit codes are the same, too. -topology cpu:8
// compiles for 8 devices of the CPU plugin.
//
// # Operation
//
// [Flags.Main] describes each slice through libtpu (or opens the CPU plugin), calls build with a
// strategy over it, and compiles the step for the shapes of the arguments. It uses no device, and
// no variable gets a value. Tracing runs in the program's own process. The compiler runs in a
// separate process, so a compiler that aborts, or that the kernel kills because of its memory, is
// an error. Ctrl-C ends both immediately with exit code 130, and leaves no incomplete file.
//
// A line on standard error shows the progress (package fit/progress). Main disables the plugins'
// own logs by setting environment variables (TF_CPP_MIN_LOG_LEVEL, TPU_MIN_LOG_LEVEL,
// TPU_STDERR_LOG_LEVEL, TPU_LOG_DIR) that are not set already.
//
// # Exit codes
//
// 0 done, 1 the work failed, 2 wrong usage, 3 a plugin is missing or unusable, 4 the program does
// not fit into the memory of a device, 5 the compiler's process died, 130 interrupted, 143
// terminated.
package aot
