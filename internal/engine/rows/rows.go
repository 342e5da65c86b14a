package rows

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
)

// Check returns an error if the shapes of indices and updates do not fit a tensor.
func Check(op string, x, indices, updates shapes.Shape) error {
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

// Scatter returns x with rows combined.
type Scatter func(x, indices, updates *graph.Node) *graph.Node

// The scatters whose updates of one row may be combined in any order.
var (
	Add Scatter = atOnce(graph.ScatterSum)
	Sub Scatter = func(x, indices, updates *graph.Node) *graph.Node { return Add(x, indices, negative(updates)) }
	Min Scatter = atOnce(graph.ScatterMin)
	Max Scatter = atOnce(graph.ScatterMax)
)

// The scatters whose updates are applied one after the other: a product of the updates would
// overflow where the row itself does not. The last of several replacements counts.
var (
	Mul     Scatter = inTurn(graph.Mul)
	Div     Scatter = inTurn(graph.Div)
	Replace Scatter = inTurn(func(_, update *graph.Node) *graph.Node { return update })
)

func negative(x *graph.Node) *graph.Node {
	if x.DType().IsUnsigned() {
		return graph.Sub(graph.ZerosLike(x), x)
	}
	return graph.Neg(x)
}

// empty reports whether there are no updates or the tensor has no elements.
func empty(x, updates *graph.Node) bool { return x.Shape().Size() == 0 || updates.Shape().Size() == 0 }

func atOnce(scatter func(x, at, updates *graph.Node, sorted, unique bool) *graph.Node) Scatter {
	return func(x, indices, updates *graph.Node) *graph.Node {
		if empty(x, updates) {
			return x
		}
		indices = numbers(indices, x.Shape().Dimensions[0])
		return scatter(x, graph.ExpandAxes(indices, -1), named(indices, updates), false, false)
	}
}

// numbers returns the indices with -1 for those outside of the n rows. It compares before it converts
// the dtype, so an index cannot wrap around to a row.
func numbers(indices *graph.Node, n int) *graph.Node {
	dtype := dtypes.Int32
	if n > math.MaxInt32 {
		dtype = dtypes.Int64
	}
	wide := graph.ConvertDType(indices, dtypes.Int64) // a uint64 that it does not hold is negative
	zero := graph.ZerosLike(wide)
	named := graph.LogicalAnd(graph.GreaterOrEqual(wide, zero), graph.LessThan(wide, graph.AddScalar(zero, n)))
	return graph.ConvertDType(graph.Where(named, wide, graph.AddScalar(zero, -1)), dtype)
}

// named returns the updates with zeros where the index is -1, so that their gradient is zero.
func named(indices, updates *graph.Node) *graph.Node {
	named := graph.GreaterOrEqual(indices, graph.ZerosLike(indices))
	for named.Rank() < updates.Rank() {
		named = graph.ExpandAxes(named, -1)
	}
	named = graph.BroadcastToDims(named, updates.Shape().Dimensions...)
	return graph.Where(named, updates, graph.ZerosLike(updates))
}

// inTurn returns a scatter that replaces rows of x by the result of apply, one update after the other.
func inTurn(apply func(row, update *graph.Node) *graph.Node) Scatter {
	return func(x, indices, updates *graph.Node) *graph.Node {
		if empty(x, updates) {
			return x
		}
		indices = numbers(indices, x.Shape().Dimensions[0])
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
			named := graph.GreaterOrEqual(index, graph.ZerosLike(index))
			at := from(graph.Reshape(index))
			old := graph.DynamicSlice(s.x, at, row) // the first row, if none is named
			now := apply(old, graph.DynamicSlice(s.updates, from(s.turn), row))
			named = graph.BroadcastToDims(graph.Reshape(named), row...)
			return []*graph.Node{
				graph.Add(s.turn, graph.Const(g, int32(1))),
				graph.DynamicUpdateSlice(s.x, graph.Where(named, now, old), at), s.indices, s.updates,
			}
		})
		return graph.While(more, body, graph.Const(g, int32(0)), x, indices, updates)[1]
	}
}

// Real returns a bool tensor with the shape of x that is false for padding. sizes are the sizes of the
// dimensions without padding.
func Real(x, sizes *graph.Node) *graph.Node {
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

// RealIndices makes -1 of the indices that are padding, which would name the first row.
func RealIndices(indices, sizes *graph.Node) *graph.Node {
	wide := graph.ConvertDType(indices, dtypes.Int64)
	return graph.Where(Real(indices, sizes), wide, graph.AddScalar(graph.ZerosLike(wide), -1))
}
