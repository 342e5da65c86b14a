package scatter

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
)

// CheckShapes returns an error of kind ValueError for the operation op if the shapes of indices and
// updates do not match a scatter of x.
func CheckShapes(op string, x, indices, updates shapes.Shape) error {
	if indices.Rank() != 1 || !indices.DType.IsInt() {
		return fault.New(errkind.ValueError, op, "give a vector of row numbers", "indices of shape %s", indices)
	}
	want := shapes.Make(x.DType, append([]int{indices.Dimensions[0]}, x.Dimensions[1:]...)...)
	if !updates.Equal(want) {
		return fault.New(errkind.ValueError, op, "give one row for each index",
			"updates of shape %s where %s is needed", updates, want)
	}
	return nil
}

// Func is a scatter operation. It returns a copy of x in which row indices[i] is combined with
// updates[i], for each i.
type Func func(x, indices, updates *graph.Node) *graph.Node

// Scatters that combine the updates of a row in any order.
var (
	Add Func = unordered(graph.ScatterSum)
	Sub Func = func(x, indices, updates *graph.Node) *graph.Node { return Add(x, indices, negative(updates)) }
	Min Func = unordered(graph.ScatterMin)
	Max Func = unordered(graph.ScatterMax)
)

// Scatters that apply the updates of a row one after the other. A product of all updates could
// overflow where the row does not. If several updates replace a row, the last one applies.
var (
	Mul     Func = sequential(graph.Mul)
	Div     Func = sequential(graph.Div)
	Replace Func = sequential(func(_, update *graph.Node) *graph.Node { return update })
)

// negative returns -x, which wraps around for unsigned integers.
func negative(x *graph.Node) *graph.Node {
	if x.DType().IsUnsigned() {
		return graph.Sub(graph.ZerosLike(x), x)
	}
	return graph.Neg(x)
}

func isEmpty(x, updates *graph.Node) bool {
	return x.Shape().Size() == 0 || updates.Shape().Size() == 0
}

// unordered converts a scatter function of GoMLX to a Func. The Func ignores indices that are not a
// row of x.
func unordered(scatter func(x, at, updates *graph.Node, sorted, unique bool) *graph.Node) Func {
	return func(x, indices, updates *graph.Node) *graph.Node {
		if isEmpty(x, updates) {
			return x
		}
		indices = invalidToMinusOne(indices, x.Shape().Dimensions[0])
		return scatter(x, graph.ExpandAxes(indices, -1), zeroInvalidUpdates(indices, updates), false, false)
	}
}

// invalidToMinusOne replaces each index outside of the n rows by -1. It compares the indices before
// it converts their dtype, so that an index cannot wrap around to a valid row.
func invalidToMinusOne(indices *graph.Node, n int) *graph.Node {
	dtype := dtypes.Int32
	if n > math.MaxInt32 {
		dtype = dtypes.Int64
	}
	wide := graph.ConvertDType(indices, dtypes.Int64) // a uint64 that overflows becomes negative
	zero := graph.ZerosLike(wide)
	valid := graph.LogicalAnd(graph.GreaterOrEqual(wide, zero), graph.LessThan(wide, graph.AddScalar(zero, n)))
	return graph.ConvertDType(graph.Where(valid, wide, graph.AddScalar(zero, -1)), dtype)
}

// zeroInvalidUpdates replaces each update with index -1 by zeros, so that its gradient is zero.
func zeroInvalidUpdates(indices, updates *graph.Node) *graph.Node {
	valid := graph.GreaterOrEqual(indices, graph.ZerosLike(indices))
	for valid.Rank() < updates.Rank() {
		valid = graph.ExpandAxes(valid, -1)
	}
	valid = graph.BroadcastToDims(valid, updates.Shape().Dimensions...)
	return graph.Where(valid, updates, graph.ZerosLike(updates))
}

// sequential returns a Func that processes one update after another, in a loop. apply computes the
// new value of a row from its old value and the update.
func sequential(apply func(row, update *graph.Node) *graph.Node) Func {
	return func(x, indices, updates *graph.Node) *graph.Node {
		if isEmpty(x, updates) {
			return x
		}
		indices = invalidToMinusOne(indices, x.Shape().Dimensions[0])
		g := x.Graph()
		row := append([]int{1}, x.Shape().Dimensions[1:]...)
		type state struct{ turn, x, indices, updates *graph.Node }
		parameters := func(g *graph.Graph) state {
			return state{
				graph.Parameter(g, "turn", shapes.Make(dtypes.Int32)), graph.Parameter(g, "x", x.Shape()),
				graph.Parameter(g, "indices", indices.Shape()), graph.Parameter(g, "updates", updates.Shape()),
			}
		}
		more := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			s := parameters(g)
			return []*graph.Node{graph.LessThan(s.turn, graph.Const(g, int32(indices.Shape().Size())))}
		})
		body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			s := parameters(g)
			from := func(first *graph.Node) []*graph.Node {
				start := []*graph.Node{first}
				for range len(row) - 1 {
					start = append(start, graph.ZerosLike(first))
				}
				return start
			}
			index := graph.DynamicSlice(s.indices, []*graph.Node{s.turn}, []int{1})
			valid := graph.GreaterOrEqual(index, graph.ZerosLike(index))
			at := from(graph.Reshape(index))
			old := graph.DynamicSlice(s.x, at, row) // row 0 if the index is invalid
			now := apply(old, graph.DynamicSlice(s.updates, from(s.turn), row))
			valid = graph.BroadcastToDims(graph.Reshape(valid), row...)
			return []*graph.Node{
				graph.Add(s.turn, graph.Const(g, int32(1))),
				graph.DynamicUpdateSlice(s.x, graph.Where(valid, now, old), at), s.indices, s.updates,
			}
		})
		return graph.While(more, body, graph.Const(g, int32(0)), x, indices, updates)[1]
	}
}

// PaddingMask returns a bool tensor of the shape of x that is false for the padding of x and true
// elsewhere. sizes is an integer vector with the size of each dimension without its padding.
func PaddingMask(x, sizes *graph.Node) *graph.Node {
	g := x.Graph()
	var mask *graph.Node
	for d := range x.Rank() {
		at := graph.Iota(g, shapes.Make(dtypes.Int32, x.Shape().Dimensions...), d)
		limit := graph.Reshape(graph.Slice(sizes, graph.AxisRange(d, d+1)))
		inside := graph.LessThan(at, graph.BroadcastToDims(limit, x.Shape().Dimensions...))
		if mask == nil {
			mask = inside
		} else {
			mask = graph.LogicalAnd(mask, inside)
		}
	}
	return mask
}

// MaskIndices replaces the padding of indices by -1, which a scatter ignores. The padding is 0 and
// would otherwise select the first row. sizes contains the size of each dimension of indices
// without its padding.
func MaskIndices(indices, sizes *graph.Node) *graph.Node {
	wide := graph.ConvertDType(indices, dtypes.Int64)
	return graph.Where(PaddingMask(indices, sizes), wide, graph.AddScalar(graph.ZerosLike(wide), -1))
}
