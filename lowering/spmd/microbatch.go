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

// SplitMicrobatches returns x with dimension 0 split into a stack [n, rows/n, ...] of n
// microbatches. In a trace of another size (see [Trace.MaskPadding]) the microbatches have resized
// rows; 0 is rows/n. No gradient flows through SplitMicrobatches.
func SplitMicrobatches(x *graph.Node, n, resized int) *graph.Node {
	dims := append([]int{n, x.Shape().Dimensions[0] / n}, x.Shape().Dimensions[1:]...)
	if resized > 0 {
		dims[1] = resized
	}
	t := requireTrace("cut", x)
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		return f.Mark(x, xshapes.Make(x.Shape().DType, dims...), microbatchMark{})
	}, nil)
}

// MarkRealRows returns rows, the number of real rows of a microbatch, an int32 scalar. The next
// [Trace.MaskPadding] uses it as the real size of the source without a parameter.
func MarkRealRows(rows *graph.Node) *graph.Node {
	t := requireTrace("real_rows", rows)
	return t.emit(rows, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		return f.Mark(x, x.Shape(), realRowsMark{})
	}, nil)
}

// microbatchMark is the mark of SplitMicrobatches.
type microbatchMark struct{}

func (microbatchMark) lower(_ *assembler, out, in *ir.Value) *ir.Statement {
	return customOp("stablehlo.reshape", out, in)
}

// realRowsMark is the mark of the number of real rows of a microbatch.
type realRowsMark struct{}

func (realRowsMark) lower(_ *assembler, out, in *ir.Value) *ir.Statement { return copyOp(out, in) }

// resolveSources sets the value of the source without a parameter to the marked number of real rows.
func resolveSources(program *lowering.Program, sources []ragged.SizeSource) []ragged.SizeSource {
	all := make([]ragged.SizeSource, len(sources))
	for i, source := range sources {
		all[i] = source
		if source.Parameter != "" {
			continue
		}
		for _, s := range program.Main().Body { // the last trace of a loop is the valid one
			if _, ok := s.Mark.(realRowsMark); ok {
				all[i].Value = s.Results[0]
			}
		}
	}
	return all
}
