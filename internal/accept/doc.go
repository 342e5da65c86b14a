// Package accept tests whether this module works on the devices of a host or a slice. It implements
// the command tpustrategy accept.
//
//	report, err := accept.Run(ctx, accept.Options{Open: open, Quick: true, OnOutcome: show})
//	...
//	fmt.Println(report.Verdict, report.Verdict.Code())
//	err = accept.WriteArchive(file, report)
//
// # Parts
//
// A run consists of [Parts], which run one after another: start-up, versions, environment, devices,
// collectives, dtypes, splits, donation, random numbers, uneven batches, training, checkpoints, and
// the bandwidth of links, memory and matrix units. A part records facts, measurements, failures,
// and findings. A finding is an unexpected result that does not prevent the use of the slice.
//
// Each part has a time limit. Time in which other programs used the processors does not count. A
// part that exceeds its limit is canceled and reported, and the next part runs if the devices still
// respond. A program that hangs on the devices cannot be stopped; the remaining parts that need the
// devices then do not run.
//
// # Several hosts
//
// The program runs on every host. After each part the hosts exchange their outcomes, so that all
// hosts report the same outcomes and the same verdict.
//
// # Expected results
//
// All computations have exact results: integers, or floats whose sums are exact. The losses of the
// training are compared with losses.json, within a tolerance for each platform and dtype; see
// [Tolerance]. A test of this package computes that file with the CPU plugin.
//
// Another test compiles all programs ahead of time for slices that are not available.
package accept
