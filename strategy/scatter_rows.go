package strategy

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// scatterRows combines the rows of x that indices name with updates.
func scatterRows(op ScatterOp, x, indices, updates *graph.Node) *graph.Node {
	if x.Shape().Size() == 0 || updates.Shape().Size() == 0 {
		return x // no row is named, or there is nothing in it
	}
	indices = rowNumbers(indices, x.Shape().Dimensions[0])
	at := graph.ExpandAxes(indices, -1)
	if op == ScatterAdd || op == ScatterSub || op == ScatterMin || op == ScatterMax {
		updates = ofNamedRows(indices, updates) // these have gradients
	}
	switch op {
	case ScatterAdd:
		return graph.ScatterSum(x, at, updates, false, false)
	case ScatterSub:
		if x.DType().IsUnsigned() {
			updates = graph.Sub(graph.ZerosLike(updates), updates)
		} else {
			updates = graph.Neg(updates)
		}
		return graph.ScatterSum(x, at, updates, false, false)
	case ScatterMin:
		return graph.ScatterMin(x, at, updates, false, false)
	case ScatterMax:
		return graph.ScatterMax(x, at, updates, false, false)
	case ScatterMul:
		return rowsInTurn(x, indices, updates, graph.Mul)
	case ScatterDiv:
		return rowsInTurn(x, indices, updates, graph.Div)
	}
	return rowsInTurn(x, indices, updates, func(_, update *graph.Node) *graph.Node { return update })
}

// rowNumbers makes -1 of the indices that name none of n rows. They are compared before they are
// converted, so that none wraps to a row.
func rowNumbers(indices *graph.Node, n int) *graph.Node {
	dtype := dtypes.Int32
	if n > math.MaxInt32 {
		dtype = dtypes.Int64
	}
	wide := graph.ConvertDType(indices, dtypes.Int64) // a uint64 that it does not hold is negative
	zero := graph.ZerosLike(wide)
	named := graph.LogicalAnd(graph.GreaterOrEqual(wide, zero), graph.LessThan(wide, graph.AddScalar(zero, n)))
	return graph.ConvertDType(graph.Where(named, wide, graph.AddScalar(zero, -1)), dtype)
}

// ofNamedRows makes zeros of the updates whose index is -1: they go nowhere, and nothing comes back
// to them as a gradient.
func ofNamedRows(indices, updates *graph.Node) *graph.Node {
	named := graph.GreaterOrEqual(indices, graph.ZerosLike(indices))
	for named.Rank() < updates.Rank() {
		named = graph.ExpandAxes(named, -1)
	}
	named = graph.BroadcastToDims(named, updates.Shape().Dimensions...)
	return graph.Where(named, updates, graph.ZerosLike(updates))
}

// realRows makes -1 of the indices beyond a replica's own: what pads them names the first row.
func realRows(indices, sizes *graph.Node) *graph.Node {
	wide := graph.ConvertDType(indices, dtypes.Int64)
	return graph.Where(realElements(indices, sizes), wide, graph.AddScalar(graph.ZerosLike(wide), -1))
}

// rowsInTurn replaces each row of x that is named by what apply makes of it and the update, one
// update after the other: a product of the updates would overflow where the row itself does not.
// Negative indices name no row.
func rowsInTurn(x, indices, updates *graph.Node, apply func(row, update *graph.Node) *graph.Node) *graph.Node {
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
