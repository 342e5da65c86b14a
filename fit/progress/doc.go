// Package progress shows that a step's program is being made: a line of text with the stage (it
// traces, lowers or compiles), the seconds so far, the seconds that a compilation of like size took
// before, and the memory of the compiler's process.
//
//	line := progress.To(os.Stderr, progress.Options{Record: progress.RecordFile()})
//	defer line.Close()
//	strat, err := strategy.New(sys, strategy.Options{Phases: line.Phase})
//
// On a terminal it is one line that is written over, and is wiped when the program is there, so
// that a bar of the training's own may follow:
//
//	compiling train_step for v5e:4x4 (4 x 4 devices): 23s of about 40s, 1.2 MB of program, 2.10 GiB of memory
//
// Elsewhere, such as in a log, such a line comes each 10 seconds. What takes less shows nothing.
//
// A compiler does not say how far it is. The expected seconds are those of the compilation in
// [Options].Record that is most alike: for the same kind of devices, of a text of at most half as
// much again or two thirds. When they are over, the longest of these is said ("of up to 5m0s"). When
// that is over too, or after a minute without any such record, the line says that the end is not
// known, and once, above it, what one can do, and whether the compiler gets little of a processor.
//
// The line also says what work begins between programs ([Line.Say]), shows the state of a run while no
// program is made ([Line.Status]), and lets text pass above it ([Line.Write]), so that one goroutine
// draws all that a terminal's line shows.
package progress
