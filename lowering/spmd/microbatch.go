package spmd

import (
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
)

// A step that cuts its rows into microbatches pads the last ones. Each run of its loop has other
// real rows, and its program for other sizes has microbatches of other sizes, but the arguments
// stay as they are: a mark stands between the two.

// Cut returns the rows of x, its dimension 0, as a stack [n, rows/n, ...] of n microbatches. In a
// trace that shows what depends on a size the microbatches have rows of another number, resized; 0
// stands for rows/n. No gradient flows.
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

// RealRows returns the real rows of a microbatch, an int32 scalar, and tells the trace's next
// [Trace.LeaveOutPadding] that they are the real size without a parameter.
func RealRows(rows *graph.Node) *graph.Node {
	t := traceOf("real_rows", rows)
	return t.emit(rows, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		return f.Mark(x, x.Shape(), realRows{})
	}, nil)
}

// microbatches asks for the rows of the operand as a stack.
type microbatches struct{}

func (microbatches) write(_ *writer, out, in *ir.Value) *ir.Statement {
	return short("stablehlo.reshape", out, in)
}

// realRows is the operand, the real rows of a microbatch.
type realRows struct{}

func (realRows) write(_ *writer, out, in *ir.Value) *ir.Statement { return unchanged(out, in) }

// located says where the step finds the real size of a microbatch.
func located(program *lowering.Program, sources []ragged.Source) []ragged.Source {
	all := make([]ragged.Source, len(sources))
	for i, source := range sources {
		all[i] = source
		if source.Parameter != "" {
			continue
		}
		for _, s := range program.Main().Body { // the last trace of a loop is the one that counts
			if _, ok := s.Mark.(realRows); ok {
				all[i].Value = s.Results[0]
			}
		}
	}
	return all
}
