// Package fit trains: it runs a training step over data, with hooks that evaluate, record, save and
// stop. A run that was interrupted or killed goes on as if nothing had happened.
//
//	result, err := fit.Run(ctx, step, fit.Dataset(batches), fit.Options{Steps: 300, Resume: true},
//		bar.New(os.Stderr), // of package fit/bar
//		fit.Evaluate("held", held, fit.Dataset(heldOut), 50),
//		fit.CSV("run/losses.csv"),
//		fit.Events("run/events"),
//		fit.Curve("run/curve.html"),
//		fit.Checkpoint("run/checkpoints", 100),
//		fit.KeepBest("run/best", "held/loss"),
//		fit.EarlyStop("held/loss", 5))
//
// # The loop
//
// [Run] takes steps until Options.Steps are taken, the data ends, or a hook stops the run. It does
// not wait for a step: it launches the next one while the devices work on those before. Of a
// program at most eight launches are under way, so that a run holds the memory of as many batches.
// Between two records the loop adds a third of a microsecond to a step, and no allocation.
//
// The data is a [Dataset] that the run distributes and feeds ahead, a dataset that the caller has
// distributed ([Distributed]), a [Feed], or a Go iterator ([Batches]).
//
// # Records
//
// After step 1, after each Options.Every steps and after the last step the run waits for the loss
// and for the metrics of train.Options, and calls the hooks. Such a step is a record. A metric of
// the step is over the rows since the record before; train.MeanLoss is recorded as "mean_loss",
// beside "loss", the loss of the step itself. [Evaluate] adds metrics of held-out data, such as
// "held/loss". [EarlyStop], [KeepBest] and [Finite] go by any of these.
//
// # Hooks of one's own
//
// [Each] calls a function after every so many steps:
//
//	fit.Each(1000, func(ctx context.Context, s *fit.State) error {
//		loss, _ := s.Value(fit.Loss)
//		return upload(ctx, s.Step(), loss)
//	})
//
// A [Hook] is a struct of functions, for hooks that begin, end, or keep something in checkpoints.
// At a record all hooks first measure, in their order, and then all record. The order of the hooks
// in the call does not matter otherwise: variables are saved last. A panic of a hook is an error.
//
// # Going on
//
// A checkpoint holds the variables (with the state of random numbers and of the optimizer), the
// position in the data, what the step's metrics have added up, the settings, and what the hooks
// keep: the patience of an early stop, the best value so far, the points of a curve. With
// Options.Resume a run goes on from the last checkpoint that is not damaged. On the same mesh it
// has the losses of a run that was not interrupted, to all digits, and takes each batch once; on
// another number of replicas, up to rounding. Files of hooks that have gone further than the
// checkpoint are cut back to it: the rows of steps that are taken again are written again.
//
// Each process saves shards of its own. With CheckpointOptions.Background, and always where the
// checkpoints go to a URL, the next steps run meanwhile: a step waits only while the shards are
// copied off the devices.
//
// A checkpoint of another model, of other shapes or of other settings is refused with [ErrResume],
// which names the variable or the setting, and changes nothing.
//
// When the context ends, as by an interrupt, the run saves a checkpoint and returns an
// [*interrupt.Error], which matches the context's error. An evaluation that was interrupted is
// made again by the run that goes on. One line makes signals, maintenance and pre-emption end the
// context, and the error carries the exit code with which a supervisor starts the process again:
//
//	ctx, stop := interrupt.Notify(ctx, interrupt.Options{Metadata: metadata}) // package fit/interrupt
//	defer stop()
//	_, err := fit.Run(ctx, ...)
//	os.Exit(interrupt.Code(err)) // 75, if it was interrupted and has a Checkpoint hook
//
// # What does not end
//
// A host that dies or hangs leaves the others waiting in a step. [Watch] names it on all of them,
// and ends the run with another code:
//
//	fit.Run(ctx, step, data, options, fit.Watch(watchdog.Options{Place: "run", Exit: os.Exit}), ...)
//
// # What fails
//
// A disk that is full does not end a run. The rows of [CSV] and [Events] are kept and written
// later, also by the run that goes on; a checkpoint is tried again when the next one is due. Both
// are warnings to Options.Logger, and errors of Run if they are not fixed by the end. Anything
// else ends the run, with a checkpoint of the steps that were taken, unless the numbers diverged.
//
// # Several processes
//
// All processes call Run alike. The first one writes the files. After each record the processes
// agree on whether the run goes on, so that an error or a stop of one of them ends all of them
// after the same step. An interrupt of one does so between the records, too.
//
// A run goes on with another number of processes, of replicas and of logical devices. A [Dataset]
// then gives each example once, whatever the sources are: what the processes had not read is shared
// out anew. With as many replicas and logical devices the losses are the same to all digits.
package fit
