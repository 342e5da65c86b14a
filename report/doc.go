// Package report says what a compiled step will need before it runs: the memory of
// each core, which collectives it makes, what it computes and moves.
//
//	compiled, err := step.Compiled(ctx, images, labels)
//	r, err := compiled.Report()
//	r.WriteText(os.Stdout)      // or json.Marshal(r), or r.WriteHTML(f)
//
// # Where the figures come from
//
// Memory is the compiler's account of one core's program. Operations and bytes are
// its cost analysis, which counts a loop once, and what the other rounds of loops add
// by the optimized program. The collectives are read from the optimized program too,
// after the partitioner has put its own in, with the loops' rounds counted. Shardings
// are the step's, as it was lowered. A core's memory is what the plugin says programs
// may use, its peak and the rate of its memory what is published for the chip: see
// [github.com/tpustrategy/tpustrategy/tpu.Generations] for the sources.
//
// The roofline is a bound and no time of a step: what the operations take one after
// another at the peak or the rate, whichever is more, without those whose time is not
// known, such as collectives. Model FLOPs utilization is what the model asks for,
// matrix products and convolutions as they were written, over what the cores could do
// in the roofline: the real figure is lower.
//
// # Forms
//
// [Report.WriteText] is for terminals, [Report.WriteHTML] a page with pictures
// that needs nothing else, and the JSON form holds everything that both show.
// All three depend on the report alone and are the same each time.
package report
