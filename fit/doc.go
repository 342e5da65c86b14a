// Package fit is a training loop: it runs a training step over data, and hooks evaluate the model,
// record metrics, save checkpoints and stop the run. A run that was interrupted or killed resumes
// from its last checkpoint with the same results as a run without the interruption.
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
// [Run] runs steps until Options.Steps is reached, the data ends, or a hook stops the run. The loop
// does not wait for a step to complete: it launches the next step while the devices still execute
// the earlier ones. At most eight launches of a program are in flight, so a run uses the memory of
// up to eight batches. Between two records the loop adds a third of a microsecond to a step, and no
// allocation.
//
// The data is a [Dataset] that the run distributes and feeds ahead, a dataset that the caller has
// distributed ([Distributed]), a [Feed], or a Go iterator ([Batches]).
//
// # Records
//
// After step 1, after every Options.Every steps and after the last step, the run waits for the loss
// and for the metrics of train.Options, and calls the hooks. Such a step is a record. A metric of
// the step covers the rows since the previous record. The metric "loss" is the loss of the recorded
// step alone; train.MeanLoss is recorded as "mean_loss". [Evaluate] adds metrics of held-out data,
// such as "held/loss". [EarlyStop], [KeepBest] and [TerminateOnNaN] can use any of these metrics.
//
// # Custom hooks
//
// [Each] calls a function at a fixed interval of steps:
//
//	fit.Each(1000, func(ctx context.Context, s *fit.State) error {
//		loss, _ := s.Value(fit.Loss)
//		return upload(ctx, s.Step(), loss)
//	})
//
// A [Hook] is a struct of functions, for hooks that need a begin, an end, or state in checkpoints.
// At a record the Measure functions of all hooks run first, in the order of the hooks; then all
// Record functions run. Checkpoints are saved last. Otherwise the order of the hooks in the call
// does not matter. A panic in a hook is returned as an error.
//
// # Resuming
//
// A checkpoint contains the variables (with the state of the random number generators and of the
// optimizer), the position in the data, the accumulated sums of the step's metrics, the settings,
// and the state of the hooks: the patience of an early stop, the best value so far, the points of a
// curve. With Options.Resume a run resumes from the last checkpoint that is not damaged. On the
// same mesh the losses equal the losses of an uninterrupted run in every digit, and each batch is
// used once; on another number of replicas the losses are equal up to rounding. If a hook's files
// contain rows of steps after the checkpoint, these rows are removed and written again.
//
// Each process saves its own shards. With CheckpointOptions.Background, and always if the
// checkpoints are saved to a URL, the following steps run during the save: a step waits only while
// the shards are copied off the devices.
//
// A checkpoint of another model, of other shapes or of other settings is refused with [ErrResume],
// which names the variable or the setting. Nothing is changed.
//
// When the context ends, for example because of a signal, the run saves a checkpoint and returns an
// [*interrupt.Error], which matches the context's error. An interrupted evaluation is repeated by
// the resumed run. [interrupt.Notify] ends the context on signals, maintenance and preemption. The
// error carries an exit code that asks a supervisor to start the process again:
//
//	ctx, stop := interrupt.Notify(ctx, interrupt.Options{Metadata: metadata}) // package fit/interrupt
//	defer stop()
//	_, err := fit.Run(ctx, ...)
//	os.Exit(interrupt.ExitCodeFor(err)) // 75, if it was interrupted and has a Checkpoint hook
//
// # Hangs
//
// A host that dies or hangs leaves the other hosts waiting in a step. [Watch] names that host on
// all other hosts, and ends the run with a different exit code:
//
//	fit.Run(ctx, step, data, options, fit.Watch(watchdog.Options{Dir: "run", Exit: os.Exit}), ...)
//
// # Errors
//
// A full disk does not end a run. The rows of [CSV] and [Events] are kept and written later, also
// by a resumed run; a failed checkpoint is tried again when the next one is due. Both are warnings
// to Options.Logger, and errors of Run if they still fail at the end. Any other error ends the run.
// A checkpoint of the completed steps is saved then, unless the numbers diverged.
//
// # Several processes
//
// Every process calls Run with the same arguments. Process 0 writes the files. After each record
// the processes agree on whether to continue, so an error or a stop in one process ends all
// processes after the same step. An interrupt of one process ends all of them between records, too.
//
// A run can resume with another number of processes, replicas and logical devices. A [Dataset]
// still yields each example once: the examples that the earlier processes had not read are
// distributed over the new processes. With the same number of replicas and logical devices the
// losses are equal in every digit.
package fit
