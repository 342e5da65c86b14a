// Package aot gives a program the flags with which it compiles its step for a slice of TPUs instead
// of running it, on any x86-64 machine: does it fit, how much memory does it take, what does it
// send?
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
// The program then takes
//
//	$ program -topology v5e:4x4 -logical 4
//	$ program -topology v5e:4x4,v5p-128 -logical 4 -report report.html -json
//
// and answers as the command `tpustrategy compile` does: the report as text, or with -json one JSON
// value, with the same names and exit codes. -topology cpu:8 compiles for 8 devices of the CPU
// plugin.
//
// # What happens
//
// [Flags.Main] describes each slice through libtpu (or opens the CPU plugin), calls build for a
// strategy over it, and compiles the step for the arguments' shapes. No device is touched, and no
// variable gets a value. The tracing runs in the program's own process, and the compiler in a
// process of its own: one that aborts, or that the kernel kills for its memory, is an error. Ctrl-C
// ends both at once, with exit code 130, and leaves no file half written.
//
// A line on standard error says how far it is (package fit/progress). The plugins' own logs
// are turned off by the environment (TF_CPP_MIN_LOG_LEVEL, TPU_MIN_LOG_LEVEL, TPU_STDERR_LOG_LEVEL,
// TPU_LOG_DIR), where it does not set them.
//
// # Exit codes
//
// 0 done, 1 the work failed, 2 wrong usage, 3 a plugin is missing or unusable, 4 the program does
// not fit into the memory of a device, 5 the compiler's process died, 130 interrupted, 143
// terminated.
package aot
