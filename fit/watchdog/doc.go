// Package watchdog detects that the steps of a run no longer make progress. It identifies the
// responsible host, and ends the wait, which would otherwise last forever.
//
// Package fit provides it as a hook:
//
//	fit.Run(ctx, step, data, options, fit.Watch(watchdog.Options{Dir: "run", Exit: os.Exit}), ...)
//
// A custom loop reports its activities. None of these calls allocates, and each costs a fraction of
// a microsecond:
//
//	w, err := watchdog.Start(ctx, watchdog.Options{Host: host, Hosts: hosts, Run: run, Dir: "gs://bucket/run"})
//	defer w.Close(nil)
//	ctx, stop := w.Context(ctx)
//	defer stop()
//	for {
//		w.SetActivity(watchdog.Input, "")
//		batch, err := next(ctx)
//		w.SetActivity(watchdog.Launch, "")
//		loss, err := step.Run(ctx, batch...)
//		w.CompleteStep()
//	}
//
// # Timeouts
//
// An activity is late after four times its longest recent duration, and never before
// [Options].MinTimeout. The timeout of a compilation, and of an activity that the run has not done
// before (its first batch, evaluation or save; the first steps; the steps of a new program), is
// [Options].FirstTimeout. Each hook has its own durations. Time in which the process itself was
// stopped, by a signal, a sleeping laptop or a lack of processor time, does not count. All
// durations are measured with the monotonic clock, so changes of the wall clock have no effect.
//
// # Identification of the host
//
// With [Options].Dir, host 3 writes its status record to status/host-0003.json in that folder or
// store once a second, and reads the records of the other hosts. A record is JSON with a sequence
// number, the step, the current activity and its duration. A host that waits in a launch, for a
// result or in an exchange can therefore identify the host that it waits for:
//
//   - a host that is silent: its record has not changed for some seconds of the reader's clock;
//   - a host that has left the loop;
//   - a host that is in another exchange;
//   - a host that has not reached the same operation, because it waits for its input, its save, a
//     hook or the compiler.
//
// All hosts report such a host within 10 seconds. They also report a host whose activity takes much
// longer than it took on the other hosts, but continue to wait for it. A slow host, a wrong clock,
// a failing save and unwritable records are also reported, but do not end the run. Without a Dir, a
// host only watches itself, and its timeout for operations with other hosts is half an hour.
//
// In a folder, records are not synced to the disk, so that a save does not delay them, and on a
// full disk a record overwrites the previous one (storage.PutOptions.Volatile). A reader skips
// records that do not parse. In an object store each write and each read is a request, so records
// are written every two seconds. With more than 8 hosts, each host reads the records every hosts/8
// seconds, and more often after it has waited for half of [Options].MinTimeout.
//
// # Reports and the end of the run
//
// A report is logged to [Options].Logger as one line and passed to [Options].OnReport. The line
// names a file with the stacks of this host's goroutines, starting with the program's own
// goroutines: host-0003.goroutines.txt next to the record, or a temporary file without a Dir. If
// the watchdog is certain that the run cannot continue, and nothing changes for
// [Options].CancelDelay, it cancels the contexts of [Watchdog.Context] with a [*StuckError]. This
// cannot stop a launch on a TPU, so [Options].Exit then ends the process. All hosts do this at
// about the same time. The supervisor of the job must restart all hosts from the last checkpoint.
//
// # Observation
//
// `tpustrategy watch` shows the records with a [Monitor], which any program can use.
package watchdog
