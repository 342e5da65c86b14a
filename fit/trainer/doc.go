// Package trainer is what the main functions of training programs have in common: the flags, the
// devices, and the exit code.
//
//	func main() { os.Exit(trainer.Main("program", run)) }
//
//	func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
//		fs := flag.NewFlagSet("program", flag.ContinueOnError)
//		f := trainer.AddFlags(fs, trainer.Defaults{Steps: 600, Devices: 8})
//		if err := f.Parse(args, stderr); err != nil {
//			return err
//		}
//		if f.Requested() { // -topology: compile for a slice that is not here
//			return trainer.Exit(f.Main(ctx, f.Strategy(rules), build))
//		}
//		strat, done, err := f.Open(ctx, f.Strategy(rules), parameters)
//		if err != nil {
//			return err
//		}
//		defer done()
//		step, err := newStep(strat)
//		...
//		result, err := fit.Run(ctx, step, data, f.Fit(nil), f.Hooks(100)...)
//		...
//	}
//
// In newStep pass the policy f.Precision to train.New, and build the layers in blocks or loops with the
// policy f.Keep. A model over integers converts its first floats with precision.Compute. If -precision or
// -remat has no effect on the first step that is traced for training, the trace fails with an error of
// kind ValueError that names the flag and the function to call.
//
// The flags are those of package aot, and -steps, -batch, -accumulate, -shard-state, -remat,
// -precision, -resume, -seed, -out, -save-every, -near, -replay, -profile, -cache, -devices and
// -plugin. A program adds its own.
//
// A run that is interrupted by a signal, or by maintenance or pre-emption of a TPU VM, saves and ends
// with the exit code 75; with -out and -resume the same command goes on from there, so that a
// supervisor can start it again. See package fit/interrupt.
//
// Nothing here is needed to train: it saves lines in programs that are alike.
package trainer
