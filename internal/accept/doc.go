// Package accept checks that this module works on the devices of a host or a slice. It implements the
// command tpustrategy accept.
//
//	report, err := accept.Run(ctx, accept.Options{Open: open, Quick: true, OnOutcome: show})
//	...
//	fmt.Println(report.Verdict, report.Verdict.Code())
//	err = accept.WriteArchive(file, report)
//
// # Parts
//
// [Parts] run one after another: start-up, versions, environment, devices, collectives, dtypes,
// splits, donation, random numbers, uneven batches, training, checkpoints, and the bandwidth of
// links, memory and matrix units. A part records facts, measurements, failures, and findings: unexpected
// results with which the slice can still be used.
//
// Each part has a time limit. Time during which other programs used the processors does not count.
// A part that exceeds its limit is canceled and reported, and the next part runs if the devices
// still respond. A launch that hangs cannot be stopped; parts that need the devices then do not run.
//
// # Several hosts
//
// The program runs on every host. After each part the hosts exchange their outcomes, so that all
// hosts have the same outcomes and the same verdict.
//
// # Expected results
//
// All computations have exact results: integers, or floats whose sums are exact. The losses of the
// training are compared with losses.json, within a tolerance for each platform and dtype; see
// [Tolerance]. A test of this package computes that file with the CPU plugin.
//
// # Ahead of time
//
// A test compiles every program of the parts for slices that are not available.
package accept
