// Package report describes a compiled step before it runs: the memory that it needs on each core,
// its collectives, its operations and the bytes that it moves.
//
//	compiled, err := step.Compiled(ctx, images, labels)
//	r, err := compiled.Report()
//	r.WriteText(os.Stdout)      // or json.Marshal(r), or r.WriteHTML(f)
//
// # Where the figures come from
//
// The figures of memory are the compiler's account of one core's program. Operations and bytes are
// the compiler's cost analysis, which counts a loop once, plus the other rounds of the loops, which
// this package counts in the optimized program. The collectives come from the optimized program
// too, which holds those of the partitioner; they count as often as their loops run. The shardings
// are those with which the step was lowered. The size of a core's memory is what the plugin lets
// programs use. A core's peak and the rate of its memory are published figures of the chip; see
// [github.com/tpustrategy/tpustrategy/tpu.Generations] for the sources.
//
// The roofline is a lower bound on time, not the time of a step. It adds up the operations, each at
// the peak or at the rate of memory, whichever takes longer. It leaves out operations whose time is
// not known, such as collectives. Model FLOPs utilization is the number of operations in the step's
// matrix products and convolutions, as they were written, divided by the number of operations that
// the cores could do in the time of the roofline. A run reaches less.
//
// The prediction is another figure: the time that the step should take on a slice of TPUs. Products
// take the cycles that the compiler estimates for them, other operations the rate of memory, and
// collectives the time of their bytes on the links of the slice, less what the schedule hides of it.
// Each figure that it rests on says whether it is published, the compiler's, fitted to a published
// measurement of a single operation, or assumed. [Predict] makes it of a program alone.
//
// # Lines of Go
//
// The operations, the collectives and the memory at the peak are shared out over the lines of Go that
// they come from: [Report].Lines. The step's text numbers its statements, compilers hand the numbers
// back with the names of operations, and the lines of the statements stand in the step's module, so that
// they are known in the process that traced the step. docs/rationale.md says how a line is found.
//
// # Forms
//
// [Report.WriteText] writes a text for terminals, [Report.WriteHTML] a page with pictures that needs
// no other file, and [Report.WriteTrace] the predicted run for Perfetto. The JSON form holds
// everything that they show. Each form depends on the report alone and is the same each time.
package report
