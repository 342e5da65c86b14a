// Package report says what a compiled step will need before it runs: the memory of
// each core, which collectives it makes, how long the compiler thinks it takes.
//
//	compiled, err := step.Compiled(ctx, images, labels)
//	r, err := compiled.Report()
//	r.WriteText(os.Stdout)      // or json.Marshal(r), or r.WriteHTML(f)
//
// # Where the figures come from
//
// Memory and cost are the compiler's: PJRT's compiled memory statistics and cost
// analysis of one core's program. The collectives are read from the optimized
// program, after the partitioner has put its own in, with the loops' rounds
// counted. Shardings are the step's, as it was lowered. A core's memory is what
// the plugin says programs may use, its peak what is published for the chip:
// see [tpustrategy/tpu.Generations] for the sources.
//
// Model FLOPs utilization is what the model asks for, matrix products and
// convolutions as they were written, over what the cores could do in the
// compiler's estimate of the time at their published peak. The estimate knows
// nothing of waiting for the network or the input, so the real figure is lower.
//
// # Forms
//
// [Report.WriteText] is for terminals, [Report.WriteHTML] a page with pictures
// that needs nothing else, and the JSON form holds everything that both show.
// All three depend on the report alone and are the same each time.
package report
