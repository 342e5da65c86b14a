// Package watchdog finds out that the steps of a run do not go on, says which host is the reason,
// and ends the wait, which would last for ever otherwise.
//
// Package fit has it as a hook:
//
//	fit.Run(ctx, step, data, options, fit.Watch(watchdog.Options{Place: "run", Exit: os.Exit}), ...)
//
// A loop of one's own says what it does. None of these calls allocates, and each takes a fraction
// of a microsecond:
//
//	w, err := watchdog.Start(ctx, watchdog.Options{Host: host, Hosts: hosts, Run: run, Place: "gs://bucket/run"})
//	defer w.Close(nil)
//	ctx, stop := w.Context(ctx)
//	defer stop()
//	for {
//		w.Do(watchdog.Input, "")
//		batch, err := next(ctx)
//		w.Do(watchdog.Launch, "")
//		loss, err := step.Run(ctx, batch...)
//		w.Step()
//	}
//
// # What is late
//
// An activity is late after four times its longest time of late, and never before
// [Options].Floor. A compilation, and what was never done before in a run (its first batch,
// evaluation, save; the first steps; the steps of another program), has [Options].First. Each hook
// has times of its own. A time in which the process itself was stopped, by a signal, a sleeping
// laptop or a processor that others used, counts for nothing. Only monotonic clocks count: a clock
// that jumps changes nothing.
//
// # Who is late
//
// With [Options].Place host 3 puts status/host-0003.json there once a second, and reads the others'
// records: JSON with a sequence number, the step, what the host does and for how long. A host that
// waits for the others in a launch, for a result or in an exchange knows for whom: a host that is
// silent (its record does not change for some seconds of the reader's clock), that has left, that is
// in another exchange, or that has not come to the same place, as it waits for its input, its save, a
// hook or the compiler. Such a host is named on all hosts within 10 seconds, also where it is only
// much later than the others were, which is waited for. A host that is slow, a clock that is wrong, a
// save that fails, and records that cannot be written are named, too, and end nothing. Without a
// place a host knows of itself alone, and gives what others take part in half an hour.
//
// In a folder nothing is brought to the disk by force, so that a save does not hold up the sign of
// life, and where the disk is full a record is written over the one before
// (storage.PutOptions.Volatile); a reader passes over a half that does not parse. In an object store
// each record and each reading of one is a request, and the records come each other second. On more
// than 8 hosts the records are read each hosts/8 seconds, and more often once this host has waited
// for half of the floor.
//
// # What happens then
//
// A report goes to [Options].Logger, in a line, and to [Options].OnReport. The goroutines of this host,
// the program's own first, are in the file that the line names: beside the record, as
// host-0003.goroutines.txt, or without a place a temporary one. If it is sure that the run does not go
// on, and nothing has moved [Options].Patience later, the contexts of [Watchdog.Context] end by a
// [*StuckError]. A launch that is under way on a TPU cannot be ended so: [Options].Exit ends the
// process. All hosts do this at about the same time; what starts the job again starts all of them,
// from the last checkpoint.
//
// # To look on
//
// `tpustrategy watch` shows the records by a [View], which any program can have: see its example.
package watchdog
