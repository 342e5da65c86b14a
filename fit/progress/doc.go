// Package progress shows the progress of compilations: one line of text with the stage (tracing,
// lowering or compiling), the elapsed seconds, the seconds that a similar compilation took before,
// and the memory of the compiler's process.
//
//	line := progress.NewLine(os.Stderr, progress.Options{Record: progress.DefaultRecordFile()})
//	defer line.Close()
//	strat, err := strategy.New(sys, strategy.Options{Phases: line.SetPhase})
//
// On a terminal the line is redrawn in place, and erased when the program is compiled, so that a
// progress bar of the training can follow:
//
//	compiling train_step for v5e:4x4 (4 x 4 devices): 23s of about 40s, 1.2 MB of program, 2.10 GiB of memory
//
// Elsewhere, for example in a log file, a new line is written every 10 seconds. Shorter
// compilations show nothing.
//
// A compiler does not report its progress. The expected time is the time of the most similar
// compilation in [Options].Record. Compilations are similar if they are for the same kind of
// devices and their program texts differ in length by a factor of at most 1.5. After the expected
// time, the line shows the longest time of these compilations ("of up to 5m0s"). After that time,
// or after a minute without a similar compilation, the line shows that the end is not known. A
// message above the line then suggests what to do, once, and warns if the compiler gets little
// processor time.
//
// Between compilations, the line can show other tasks ([Line.StartTask]) and the status of a run
// ([Line.SetStatus]). [Line.Write] prints text above the line.
package progress
