package ring

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// Options configures attention. The zero value is attention without a mask.
type Options struct {
	// Causal masks the keys after the position of a query.
	Causal bool
	// Scale is the factor of the scores. 0 means 1/sqrt(dim).
	Scale float64
}

// Attention returns softmax(scale * q kᵀ) v over a sequence that is split over a logical axis. q, k
// and v are tensors of the replica, [batch, length, heads, dim], with equal shapes except for the
// dim of v. The size of the axis must divide the length. Scores and sums are computed in float32,
// and the result has the dtype of v.
//
// Attention panics with an [*errkind.Fault].
func Attention(axis string, q, k, v *graph.Node, opts Options) *graph.Node {
	validate(q, k, v)
	cut := []any{nil, axis}
	return manual.Region([]string{axis}, []manual.Arg{manual.In(q, cut...), manual.In(k, cut...),
		manual.In(v, cut...)}, []sharding.Spec{sharding.P(cut...)},
		func(in []*graph.Node) []*graph.Node {
			return []*graph.Node{LocalAttention(axis, in[0], in[1], in[2], opts)}
		})[0]
}

// LocalAttention computes [Attention] inside a [manual.Region] over the axis. q, k, v and the
// result are the device's shards of the sequence.
func LocalAttention(axis string, q, k, v *graph.Node, opts Options) *graph.Node {
	validate(q, k, v)
	g := q.Graph()
	n := manual.Size(g, axis)
	dims := q.Shape().Dimensions
	batch, length, heads := dims[0], dims[1], dims[2]
	if opts.Scale == 0 {
		opts.Scale = 1 / math.Sqrt(float64(dims[3]))
	}
	scores := shapes.Make(dtypes.Float32, batch, heads, length)
	none := graph.BroadcastToShape(graph.Const(g, float32(maskedScore)), scores)
	sum := graph.Zeros(g, shapes.Make(dtypes.Float32, batch, heads, length, v.Shape().Dimensions[3]))
	mine := manual.Index(g, axis)
	// After i steps, a device has the keys of the device i positions before it.
	step := func(i *graph.Node, state []*graph.Node, same []*graph.Node) []*graph.Node {
		k, v, most, total, sum := state[0], state[1], state[2], state[3], state[4]
		q, mine := same[0], same[1]
		s := graph.MulScalar(graph.ConvertDType(graph.Einsum("bqhd,bkhd->bhqk", q, k), dtypes.Float32), opts.Scale)
		if opts.Causal {
			theirs := graph.Mod(graph.Add(graph.Sub(mine, i), graph.Const(g, int32(n))), graph.Const(g, int32(n)))
			place := func(device *graph.Node, dim int) *graph.Node {
				within := graph.Iota(g, shapes.Make(dtypes.Int32, length, length), dim)
				return graph.Add(graph.MulScalar(device, length), within)
			}
			sees := graph.GreaterOrEqual(place(mine, 0), place(theirs, 1))
			s = graph.Where(graph.BroadcastToShape(graph.ExpandLeftToRank(sees, 4), s.Shape()), s,
				graph.BroadcastToShape(graph.Const(g, float32(maskedScore)), s.Shape()))
		}
		// Subtracting the largest score prevents overflow and does not change the result.
		most = graph.StopGradient(most)
		now := graph.StopGradient(graph.Max(most, graph.ReduceMax(s, -1)))
		p, before := graph.Exp(graph.Sub(s, graph.InsertAxes(now, -1))), graph.Exp(graph.Sub(most, now))
		weighed := graph.ConvertDType(graph.Einsum("bhqk,bkhd->bhqd", graph.ConvertDType(p, v.DType()), v),
			dtypes.Float32)
		return []*graph.Node{manual.Shift(k, 1, axis), manual.Shift(v, 1, axis), now,
			graph.Add(graph.Mul(total, before), graph.ReduceSum(p, -1)),
			graph.Add(graph.Mul(sum, graph.InsertAxes(before, -1)), weighed)}
	}
	state := []*graph.Node{k, v, none, graph.ZerosLike(none), sum}
	if n == 1 {
		state = step(graph.Const(g, int32(0)), state, []*graph.Node{q, mine})
	} else {
		state = loop.Run(nil, n, loop.Arguments{Carried: state, Shared: []*graph.Node{q, mine}},
			func(l *loop.Layer) loop.Results {
				return loop.Results{Carried: step(l.Index, l.Carried, l.Shared)}
			}, loop.Options{Keep: remat.Nothing()}).Carried
	}
	y := graph.Div(state[4], graph.InsertAxes(state[3], -1))
	return graph.ConvertDType(graph.TransposeAllAxes(y, 0, 2, 1, 3), v.DType())
}

// maskedScore is the score of a masked key. Its exponential is 0 compared with the score of any
// other key. Each query has at least one other key: the key at its own position, which is processed
// in the first step.
const maskedScore = -1e30

func validate(q, k, v *graph.Node) {
	fail := func(reason, hint string) {
		panic(&errkind.Fault{Op: "ring: attention", Reason: reason, Hint: hint, Class: errkind.ValueError})
	}
	for i, x := range []*graph.Node{q, k, v} {
		if x == nil || x.Rank() != 4 {
			fail(fmt.Sprintf("argument %d does not have four dimensions", i), "pass [batch, length, heads, dim]")
		}
		if !x.DType().IsFloat() {
			fail(fmt.Sprintf("argument %d has dtype %s", i, x.DType()), "convert it to a float")
		}
	}
	if !q.Shape().Equal(k.Shape()) {
		fail(fmt.Sprintf("queries of shape %s and keys of shape %s", q.Shape(), k.Shape()),
			"pass equal shapes: repeat the keys of grouped heads")
	}
	of, with := v.Shape().Dimensions, k.Shape().Dimensions
	if of[0] != with[0] || of[1] != with[1] || of[2] != with[2] {
		fail(fmt.Sprintf("values of shape %s and keys of shape %s", v.Shape(), k.Shape()),
			"use the same batch, length and heads")
	}
}
