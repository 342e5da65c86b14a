package spmd

import (
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
)

// A step that splits its rows into microbatches pads the last microbatches. Each iteration of its
// loop has a different number of real rows. The program for another size has microbatches of
// another size, but the arguments keep their sizes: a mark converts between them.

// Cut returns x with dimension 0 split into a stack [n, rows/n, ...] of n microbatches. In a trace
// of another size (see [Trace.LeaveOutPadding]) the microbatches have resized rows; 0 is rows/n. No
// gradient flows through Cut.
func Cut(x *graph.Node, n, resized int) *graph.Node {
	dims := append([]int{n, x.Shape().Dimensions[0] / n}, x.Shape().Dimensions[1:]...)
	if resized > 0 {
		dims[1] = resized
	}
	t := traceOf("cut", x)
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		return f.Mark(x, xshapes.Make(x.Shape().DType, dims...), microbatches{})
	}, nil)
}

// RealRows returns rows, the number of real rows of a microbatch, an int32 scalar. The next
// [Trace.LeaveOutPadding] uses it as the real size of the source without a parameter.
func RealRows(rows *graph.Node) *graph.Node {
	t := traceOf("real_rows", rows)
	return t.emit(rows, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		return f.Mark(x, x.Shape(), realRows{})
	}, nil)
}

// microbatches is the mark of the operand's rows as a stack.
type microbatches struct{}

func (microbatches) write(_ *writer, out, in *ir.Value) *ir.Statement {
	return short("stablehlo.reshape", out, in)
}

// realRows is the mark of the number of real rows of a microbatch.
type realRows struct{}

func (realRows) write(_ *writer, out, in *ir.Value) *ir.Statement { return unchanged(out, in) }

// located sets the value of the source without a parameter to the marked number of real rows.
func located(program *lowering.Program, sources []ragged.Source) []ragged.Source {
	all := make([]ragged.Source, len(sources))
	for i, source := range sources {
		all[i] = source
		if source.Parameter != "" {
			continue
		}
		for _, s := range program.Main().Body { // the last trace of a loop is the valid one
			if _, ok := s.Mark.(realRows); ok {
				all[i].Value = s.Results[0]
			}
		}
	}
	return all
}
