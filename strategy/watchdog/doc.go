// Package watchdog finds out that the steps of a run do not go on, says which host is the reason,
// and ends the wait, which would last for ever otherwise.
//
// Package strategy/fit has it as a hook:
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
// [Options].Floor, 5 seconds. A compilation, and what was never done before in a run (its first
// batch, evaluation, save; the first steps; the steps of another program), has [Options].First, half
// an hour. Each hook has times of its own. A time in which the process itself was stopped, by a
// signal, a sleeping laptop or a processor that others used, counts for nothing. Only monotonic
// clocks count: a clock that jumps changes nothing.
//
// # The records
//
// With [Options].Place, a folder or a store that all hosts share, host 3 puts status/host-0003.json
// there once a second, and reads the others' records: JSON with a sequence number, the step, the
// rate, the loss, the last checkpoint, what the host does and for how long. Without a place a host
// knows of itself alone, and gives what others take part in half an hour.
//
// In a folder nothing is brought to the disk by force, so that a save does not hold up the sign of
// life, and where the disk is full a record is written over the one before
// (storage.PutOptions.Volatile); a reader passes over a half that does not parse. In an object store
// each record and each reading of one is a request, and the records come each other second. On more
// than 8 hosts the records are read each hosts/8 seconds, and more often once this host has waited
// for half of the floor.
//
// # Who is late
//
// A host that waits for the others in a launch, for a result or in an exchange knows for whom: a
// host that is silent, that has left, that is in another exchange, or that has not come to the same
// place, as it waits for its input, its save, a hook or the compiler. Such a host is named on all
// hosts within 10 seconds, also where it is only much later than the others were. A host that is
// slow, a clock that is wrong, a save that fails, and records that cannot be written are named, too,
// and end nothing.
//
// A host is silent whose record does not change for some seconds of the reader's clock. No two
// clocks are compared but to name one that is wrong.
//
// # What happens then
//
// A report goes to [Options].Logger, in a line, and to [Options].OnReport. The goroutines of this host,
// the program's own first, are in the file that the line names: beside the record, as
// host-0003.goroutines.txt, or without a place a temporary one. If nothing has moved
// [Options].Patience later, a minute, the contexts of [Watchdog.Context] end by a [*StuckError],
// which names the host and the cause. A launch that is under way on a TPU cannot be ended so. If the
// watchdog is not closed ten seconds later, and [Options].Exit is os.Exit, the process ends with
// [ExitCode]. All hosts do this at about the same time; what starts the job again starts all of
// them, from the last checkpoint.
//
// Only what is sure ends a run: a host that is not there, or an activity that is late by its own
// host's times. That a host is later than the others were is said, and waited for.
//
// # To look on
//
// `tpustrategy watch` shows the records by a [View], which any program can have:
//
//	board, err := watchdog.Open(ctx, "run")          // or gs://bucket/run
//	defer board.Close()
//	var view watchdog.View
//	look, err := view.Look(ctx, board)               // and again a second later, to see who is alive
//	for _, line := range look.Text(0) {
//		fmt.Println(line)
//	}
package watchdog
