// Package accept runs the acceptance of a slice: what proves, on one host or on all hosts of a
// slice, that this project works there. The command tpustrategy accept is its face.
//
//	report, err := accept.Run(ctx, accept.Options{Open: open, Quick: true, Tell: show})
//	...
//	fmt.Println(report.Verdict, report.Verdict.Code())
//	err = accept.WriteArchive(file, report)
//
// # Parts
//
// [Parts] are run one after another: start-up, versions, environment, devices, collectives, dtypes,
// splits, donation, random numbers, uneven batches, training, checkpoints, and what the machine's
// links, memories and units give. A part records facts and figures, findings, which do not keep
// the slice from use, and failures.
//
// Each part has a time of its own, in which what other programs took of the machine's processors
// does not count. A part that does not end by then is cut off and named, and the next one begins if
// the devices still answer. A launch that hangs cannot be stopped: what needs the devices is then
// not run.
//
// # Several hosts
//
// The program runs on every host. After each part the hosts exchange what came of it, so that each
// has the outcomes of all and comes to the same verdict.
//
// # Answers
//
// What is computed has one right answer: integers, and floats whose sums are exact. The losses of
// training are held against losses.json, which this package's test makes and makes again on the
// CPU plugin, within a tolerance for each platform and dtype, see [Tolerance].
//
// # Ahead of time
//
// A test compiles every program of the parts for slices that are not at hand, so that nobody meets
// a compiler's error on the first day.
package accept
