// Package fit trains: it runs a training step over data, with hooks that evaluate, save, record,
// and stop.
//
//	result, err := fit.Run(ctx, step, fit.Dataset(batches), fit.Options{Steps: 300, Resume: true},
//		bar.New(os.Stderr),
//		fit.Evaluate("held", held, fit.Dataset(heldOut), 50),
//		fit.CSV("run/losses.csv"),
//		fit.Events("run/events"),
//		fit.Checkpoint("run/checkpoints", 100),
//		fit.KeepBest("run/best", "held/loss"),
//		fit.EarlyStop("held/loss", 5))
package fit
