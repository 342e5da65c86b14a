package generate_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/attention/pos"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// TestWithoutACacheAttentionIsThatOfGoMLX compares attention with fewer key heads than query heads,
// rotary embeddings, and the gradients of both.
func TestWithoutACacheAttentionIsThatOfGoMLX(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	var none *generate.Cache
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		heads := func(i, n int) *graph.Node {
			x := graph.Iota(rc.Graph(), graph.Const(rc.Graph(), make([]float32, 2*5*n*6)).Shape(), 0)
			return graph.Reshape(graph.Sin(graph.MulScalar(graph.AddScalar(x, i), 0.7)), 2, 5, n, 6)
		}
		q, k, v := heads(1, 4), heads(50, 2), heads(90, 2)
		positions := none.Positions(graph.Zeros(rc.Graph(), graph.Const(rc.Graph(), [][]int32{{0, 0, 0, 0, 0},
			{0, 0, 0, 0, 0}}).Shape()))
		ours := none.Attend(generate.Rotary(q, positions, 1000), generate.Rotary(k, positions, 1000), v)
		q2, k2 := pos.NewRoPE(1000).EncodeQK(q, k, graph.Iota(rc.Graph(), graph.Const(rc.Graph(), make([]int32, 5)).Shape(),
			0), 1)
		theirs, _ := attention.Core(q2, k2, v, attention.LayoutBSHD, attention.CoreOptions{UseCausalMask: true})
		results := []*graph.Node{graph.ReduceAllMax(graph.Abs(graph.Sub(ours, theirs)))}
		loss := func(x *graph.Node) *graph.Node {
			return graph.ReduceAllSum(graph.Mul(x, graph.Sin(graph.MulScalar(q, 3))))
		}
		want := graph.Gradient(loss(theirs), q, k, v)
		for i, g := range graph.Gradient(loss(ours), q, k, v) {
			results = append(results, graph.ReduceAllMax(graph.Abs(graph.Sub(g, want[i]))))
		}
		return append(results, graph.ReduceAllMax(graph.Abs(theirs)), graph.ReduceAllMax(graph.Abs(want[1])))
	}, strategy.FunctionOptions{})
	out, err := f.Run(t.Context())
	require.NoError(t, err)
	for i, v := range out {
		assert.Equal(t, dtypes.Float32, v.Shape().DType)
		x := strategytest.Values(t, v, 1)[0].(float32)
		if i < 4 {
			assert.Less(t, x, float32(1e-5), "result %d", i)
		} else {
			assert.Greater(t, x, float32(0.1), "they are no zeros")
		}
	}
}
