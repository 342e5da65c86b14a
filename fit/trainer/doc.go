// Package trainer contains the common parts of the main functions of training programs: the flags,
// the devices, and the exit code.
//
//	func main() { os.Exit(trainer.Main("program", run)) }
//
//	func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
//		fs := flag.NewFlagSet("program", flag.ContinueOnError)
//		f := trainer.AddFlags(fs, trainer.Defaults{Steps: 600, Devices: 8})
//		if err := f.Parse(args, stderr); err != nil {
//			return err
//		}
//		if f.Requested() { // -topology: compile for a slice, do not run
//			return trainer.NewExitError(f.Main(ctx, f.StrategyOptions(rules), build))
//		}
//		strat, done, err := f.Open(ctx, f.StrategyOptions(rules), parameters)
//		if err != nil {
//			return err
//		}
//		defer done()
//		step, err := newStep(strat)
//		...
//		result, err := fit.Run(ctx, step, data, f.FitOptions(nil), f.Hooks(100)...)
//		...
//	}
//
// In newStep, pass the policy f.Precision to train.New, and build the layers in blocks or loops
// with the policy f.Remat. A model whose inputs are integers must convert its first floats with
// precision.Compute. If -precision or -remat has no effect on the first step that is traced for
// training, the trace fails with an error of kind ValueError that names the flag and the function
// to call.
//
// The flags are the flags of package aot, and -steps, -batch, -accumulate, -shard-state, -remat,
// -precision, -resume, -seed, -out, -save-every, -near, -replay, -profile, -cache, -devices and
// -plugin. A program can add its own flags.
//
// A run that is interrupted by a signal, or by maintenance or preemption of a TPU VM, saves a
// checkpoint and ends with exit code 75. With -out and -resume the same command resumes from it, so
// a supervisor can start the command again. See package fit/interrupt.
//
// The package is optional: it only removes code that training programs would repeat.
package trainer
