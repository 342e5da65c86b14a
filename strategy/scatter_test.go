package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestScatterOfASplitVariable(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n, p := s.NumReplicasInSync(), s.NumLogicalDevices()
		// Rows 1 and 1 again: a combination uses both updates, a replacement the last one.
		for op, want := range map[strategy.ScatterOp]float32{
			strategy.ScatterAdd: 8 + 2 + 5, strategy.ScatterSub: 8 - 2 - 5, strategy.ScatterMul: 8 * 2 * 5,
			strategy.ScatterDiv:    8.0 / 2 / 5,
			strategy.ScatterUpdate: 5, strategy.ScatterMin: 2, strategy.ScatterMax: 8,
		} {
			o := strategy.VariableOptions{Aggregation: strategy.AggregateFirst}
			if p > 1 {
				o.Annotation = logical.SplitInto(2, 1)
			}
			start := [][]float32{{8, 1}, {8, 1}, {8, 1}, {8, 1}}
			v, err := s.NewVariable(ctx, start, o)
			require.NoError(t, err)
			expect := [][]float32{{8, 1}, {want, 1}, {8, 1}, {8, 1}}
			rows := [][]float32{{2, 1}, {5, 1}}
			for j, x := range map[strategy.ScatterOp]float32{strategy.ScatterAdd: 3, strategy.ScatterSub: -1} {
				if j == op {
					expect[1][1] = x
				}
			}
			// In the step, where only the rows of replica 0 are used.
			_, err = s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				id := graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Float32)
				return []*graph.Node{rc.Scatter(op, v, in[0], graph.Add(in[1], id))}
			}, strategy.FunctionOptions{}).Run(ctx, []int32{1, 1}, rows)
			require.NoError(t, err)
			for r, got := range strategytest.Values(t, v, n) {
				require.InDeltaSlice(t, expect[1], got.([][]float32)[1], 1e-6, "%s, replica %d", op, r)
				require.Equal(t, expect[3], got.([][]float32)[3])
			}
			// And outside of steps.
			require.NoError(t, v.Assign(ctx, start))
			require.NoError(t, v.Scatter(ctx, op, []int32{1, 1}, rows))
			require.InDeltaSlice(t, expect[1], strategytest.Values(t, v, n)[0].([][]float32)[1], 1e-6, op)
			require.NoError(t, v.Close())
		}
	})
}
