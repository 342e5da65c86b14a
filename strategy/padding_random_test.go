package strategy_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// rowGraph generates a random graph over rows. Equal seeds generate equal ops for any number of
// rows.
type rowGraph struct {
	rng    *rand.Rand
	values []rowValue
}

// rowValue is a node. rows has, for each dimension, its size as a multiple of the number of rows, or
// 0 if the size does not depend on the rows.
type rowValue struct {
	x    *graph.Node
	rows []int
}

func (g *rowGraph) pick() rowValue { return g.values[g.rng.IntN(len(g.values))] }

func (g *rowGraph) add(x *graph.Node, rows ...int) { g.values = append(g.values, rowValue{x, rows}) }

// step appends the result of another op. It keeps the numbers small.
func (g *rowGraph) step() {
	v := g.pick()
	x, rank := v.x, v.x.Rank()
	axis := 0
	if rank > 0 {
		axis = g.rng.IntN(rank)
	}
	without := slices.Clone(v.rows)
	if rank > 0 {
		without = slices.Delete(without, axis, axis+1)
	}
	switch op := g.rng.IntN(16); {
	case op == 0:
		g.add(graph.Tanh(x), v.rows...)
	case op == 1:
		g.add(graph.Sin(graph.MulScalar(x, float64(1+g.rng.IntN(3)))), v.rows...)
	case op == 2 && rank > 0:
		g.add(graph.ReduceMean(x, axis), without...)
	case op == 3 && rank > 0:
		g.add(graph.Tanh(graph.ReduceSum(x, axis)), without...)
	case op == 4 && rank > 0:
		g.add(graph.ReduceMax(x, axis), without...)
	case op == 5 && rank > 0:
		g.add(graph.Softmax(x, axis), v.rows...)
	case op == 6 && rank > 1:
		all := rand.New(rand.NewPCG(g.rng.Uint64(), 1)).Perm(rank)
		var rows []int
		for _, d := range all {
			rows = append(rows, v.rows[d])
		}
		g.add(graph.TransposeAllAxes(x, all...), rows...)
	case op == 7 && rank > 1 && v.rows[0] > 0 && v.rows[1] == 0: // rows are the first dimension
		dims := x.Shape().Dimensions
		rows := append([]int{v.rows[0] * dims[1]}, v.rows[2:]...)
		if rows[0] <= 12 {
			g.add(graph.Reshape(x, append([]int{dims[0] * dims[1]}, dims[2:]...)...), rows...)
		}
	case op == 8 && rank > 0 && v.rows[axis] == 0 && x.Shape().Dimensions[axis] > 1:
		specs := make([]graph.SliceAxisSpec, rank)
		for d := range specs {
			specs[d] = graph.AxisRange()
		}
		specs[axis] = graph.AxisRange(1)
		g.add(graph.Slice(x, specs...), v.rows...)
	case op == 9 && rank > 0 && v.rows[axis] == 0 && x.Shape().Dimensions[axis] < 8:
		g.add(graph.Concatenate([]*graph.Node{x, graph.Neg(x)}, axis), v.rows...)
	case op == 10 && rank > 0: // broadcast to the dimension that was averaged
		mean := graph.ReduceAndKeep(x, graph.ReduceMean, axis)
		g.add(graph.Sub(x, mean), v.rows...)
	case op == 11 && rank == 2 && x.Shape().Size() < 4000:
		other := axis
		g.add(graph.Tanh(graph.DotGeneral(x, []int{other}, nil, graph.Sin(x), []int{other}, nil)), v.rows[1-other],
			v.rows[1-other])
	case op == 12 && rank > 0:
		g.add(graph.L2Normalize(graph.AddScalar(x, 2), axis), v.rows...)
	case op == 13 && rank > 0:
		count := float64(x.Shape().Dimensions[axis])
		g.add(graph.MulScalar(graph.ReduceSum(x, axis), 1/(count+1e-9)), without...)
	case op == 14:
		other := g.pick()
		if slices.Equal(other.rows, v.rows) && other.x.Shape().Equal(x.Shape()) {
			g.add(graph.Add(graph.Mul(x, other.x), x), v.rows...)
		}
	case op == 15 && rank > 0 && v.rows[axis] == 0:
		g.add(graph.Reverse(x, axis), v.rows...)
	}
}

// Random graphs have the results and the gradients of their actual rows.
func TestRandomGraphsLeavePaddingOut(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	one := strategytest.New(t, 1, 1)
	for seed := range uint64(4) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			step := func(rc *strategy.ReplicaContext, in []*graph.Node) (out []*graph.Node) {
				w := rc.Scope().VariableWithValue("w", tensors.FromValue([][]float32{{1, -1, 0.5, 2}, {0.3, 1, 1, -2},
					{1, 0.1, -1, 1}})).NodeValue(rc.Graph())
				g := &rowGraph{rng: rand.New(rand.NewPCG(seed, 3))}
				g.add(in[0], 1, 0)
				g.add(graph.Dot(in[0], w).Product(), 1, 0)
				g.add(graph.BroadcastToDims(graph.ExpandAxes(in[0], 1), in[0].Shape().Dimensions[0], 2, 3), 1, 0, 0)
				for range 24 {
					g.step()
				}
				sum := graph.Const(rc.Graph(), float32(0))
				for _, v := range g.values[len(g.values)/2:] {
					out = append(out, v.x)
					sum = graph.Add(sum, graph.ReduceAllMean(v.x))
				}
				return append(out, graph.Gradient(graph.Add(sum, graph.Add(graph.ReduceAllMean(w), graph.ReduceAllMean(in[0]))), w,
					in[0])...)
			}
			batch := []*tensors.Tensor{strategytest.Normals(rand.New(rand.NewPCG(seed, 4)), 6, 3)}
			args := poisoned(t, s, batch, []int{4, 2}, 4)
			o := strategy.FunctionOptions{Store: model.NewStore(), Padding: strategy.MaskPadding}
			if seed%2 == 0 { // split over the logical devices, including the rows
				o.Arguments = []logical.Annotation{logical.SplitInto(2, 1)}
			}
			got, err := s.Function(step, o).Run(ctx, args...)
			require.NoError(t, err)
			plain := one.Function(step, strategy.FunctionOptions{Store: model.NewStore()})
			for r, rows := range [][2]int{{0, 4}, {4, 6}} {
				want, err := plain.Run(ctx, take(batch, rows[0], rows[1])...)
				require.NoError(t, err)
				for i := range want {
					a, err := want[i].Local(ctx, 0)
					require.NoError(t, err)
					b, err := got[i].Local(ctx, r)
					require.NoError(t, err)
					require.Equal(t, a.Shape().String(), b.Shape().String())
					assert.True(t, a.InDelta(b, 1e-3), "result %d of replica %d is %s, want %s", i, r, b, a)
				}
			}
		})
	}
}
