// Package report describes a compiled step before it runs: the memory that it needs on each core,
// its collectives, its operations and its memory traffic.
//
//	compiled, err := step.Compiled(ctx, images, labels)
//	r, err := report.Of(compiled)
//	r.WriteText(os.Stdout)      // or json.Marshal(r), or r.WriteHTML(f)
//
// # Sources of the figures
//
// The memory figures are the compiler's figures for one core's program. Operations and bytes are the
// compiler's cost analysis, which counts a loop once, plus the further iterations of the loops, which
// this package counts in the optimized program. The collectives are read from the optimized program,
// which includes the collectives that the partitioner adds. A collective in a loop counts once per
// iteration. The shardings are those of the lowered step. The size of a core's memory is the memory
// that the plugin makes available to programs. A core's peak and memory bandwidth are published
// figures of the chip; see [github.com/tpustrategy/tpustrategy/tpu.Generations] for the sources.
//
// The roofline is a lower bound on time, not the time of a step. Model FLOPs utilization compares the
// step's matrix products and convolutions as written with the roofline; see [Cost].
//
// The prediction is the expected time of the step on a slice of TPUs; see package report/cost.
//
// # Lines of Go
//
// [Report].Lines contains the operations, the collectives and the memory at the peak by line of Go.
// The step's text numbers its statements, compilers keep the numbers in the names of operations, and
// the step's module contains the lines of the statements. The lines are therefore known in the
// process that traced the step. docs/rationale.md describes how a line is found.
//
// # Formats
//
// [Report.WriteText] writes a text for terminals, [Report.WriteHTML] a self-contained page with
// diagrams, and [Report.WriteTrace] the predicted run for Perfetto. The JSON form contains
// everything that they show. Each format depends only on the report, and the same report is written
// as the same bytes.
package report
