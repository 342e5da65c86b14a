package strategy_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// TestSplitResultsWithoutElementsAreArgumentsOfTheNextStep passes results without elements, which are
// split over the logical devices, to other steps and to calls outside of steps.
func TestSplitResultsWithoutElementsAreArgumentsOfTheNextStep(t *testing.T) {
	ctx := t.Context()
	empty := tensors.FromShape(shapes.Make(dtypes.Float32, 0, 4))
	for _, m := range [][2]int{{1, 2}, {2, 2}} {
		s := strategytest.New(t, m[0], m[1])
		for _, a := range []logical.Annotation{logical.SplitInto(1, 2), logical.SplitInto(2, 1), logical.Replicated()} {
			x, err := s.Mirror(ctx, empty, a)
			require.NoError(t, err)
			keep := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{graph.AddScalar(in[0], 1),
					graph.Slice(graph.Concatenate([]*graph.Node{in[0], graph.IotaFull(in[0].Graph(), shapes.Make(dtypes.Float32, 2,
						4))}, 0), graph.AxisRange(2, 2))}
			}, strategy.FunctionOptions{Name: "keep", Arguments: []logical.Annotation{a}, Results: []logical.Annotation{a, a}})
			results, err := keep.Run(ctx, x)
			require.NoError(t, err, "%v", a)
			for i, r := range results {
				assert.True(t, r.Annotation().Equal(a), "%v is split as %v", r.Annotation(), a)
				again, err := keep.Run(ctx, r)
				require.NoError(t, err, "result %d, split as %v", i, a)
				local, err := again[0].Local(ctx, 0)
				require.NoError(t, err)
				assert.Equal(t, []int{0, 4}, local.Shape().Dimensions)
				all, err := s.Gather(ctx, r, 0)
				require.NoError(t, err)
				assert.Equal(t, []int{0, 4}, all.Shape().Dimensions)
				sum, err := s.Reduce(ctx, strategy.Sum, r)
				require.NoError(t, err)
				_, err = keep.Run(ctx, sum)
				assert.NoError(t, err, "%v: the sum of result %d, split as %v", m, i, a)
				bound, err := keep.Bind(ctx, sum)
				if assert.NoError(t, err) {
					for range 2 {
						assert.NoError(t, bound.Launch(ctx))
					}
					assert.NoError(t, bound.Close())
				}
			}
		}
		v, err := s.NewVariable(ctx, empty, strategy.VariableOptions{Name: "empty", Aggregation: strategy.AggregateMean,
			Annotation: logical.SplitInto(1, 2)})
		require.NoError(t, err)
		update := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			rc.Assign(v, graph.AddScalar(rc.Read(v), 1))
			return nil
		}, strategy.FunctionOptions{Name: "update"})
		for range 2 {
			_, err := update.Run(ctx)
			assert.NoError(t, err)
		}
	}
}
