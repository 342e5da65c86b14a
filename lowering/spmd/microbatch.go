package spmd

import (
	"github.com/gomlx/go-xla/stablehlo"
	xshapes "github.com/gomlx/go-xla/types/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/ir"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
)

// A step that splits its batch into microbatches pads the last microbatches, so the iterations of
// its loop have different numbers of rows. In a trace for another size the microbatches have
// another size, but the arguments do not. A placeholder converts between the sizes.

// SplitMicrobatches splits dimension 0 of x into n microbatches and returns a tensor of shape [n,
// rows/n, ...]. In a trace for another size (see [Trace.MaskPadding]), a microbatch has resized
// rows instead of rows/n if resized is not 0. No gradient flows through SplitMicrobatches.
func SplitMicrobatches(x *graph.Node, n, resized int) *graph.Node {
	dims := append([]int{n, x.Shape().Dimensions[0] / n}, x.Shape().Dimensions[1:]...)
	if resized > 0 {
		dims[1] = resized
	}
	t := requireTrace("cut", x)
	return t.emit(x, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		return f.AddPlaceholder(x, xshapes.Make(x.Shape().DType, dims...), microbatchPlaceholder{})
	}, nil)
}

// MarkRealRows returns rows, an int32 scalar, which is the number of rows of a microbatch without
// padding. The next call of [Trace.MaskPadding] uses it as the real size of the source without a
// parameter.
func MarkRealRows(rows *graph.Node) *graph.Node {
	t := requireTrace("real_rows", rows)
	return t.emit(rows, func(f *lowering.Function, x *stablehlo.Value) (*stablehlo.Value, error) {
		return f.AddPlaceholder(x, x.Shape(), realRowsPlaceholder{})
	}, nil)
}

type microbatchPlaceholder struct{}

func (microbatchPlaceholder) lower(_ *assembler, out, in *ir.Value) *ir.Statement {
	return customOp("stablehlo.reshape", out, in)
}

// realRowsPlaceholder represents MarkRealRows.
type realRowsPlaceholder struct{}

func (realRowsPlaceholder) lower(_ *assembler, out, in *ir.Value) *ir.Statement {
	return copyOp(out, in)
}

// setRealRowsSource sets the Value field of the sources that have no parameter. The value is the
// result of MarkRealRows.
func setRealRowsSource(program *lowering.Program, sources []ragged.SizeSource) []ragged.SizeSource {
	all := make([]ragged.SizeSource, len(sources))
	for i, source := range sources {
		all[i] = source
		if source.Parameter != "" {
			continue
		}
		for _, s := range program.Main().Body { // the last trace of a loop is the valid one
			if _, ok := s.Placeholder.(realRowsPlaceholder); ok {
				all[i].Value = s.Results[0]
			}
		}
	}
	return all
}
