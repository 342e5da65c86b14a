package strategy_test

import (
	"context"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

var scatters = []strategy.ScatterOp{
	strategy.ScatterAdd, strategy.ScatterSub, strategy.ScatterMul, strategy.ScatterDiv,
	strategy.ScatterUpdate, strategy.ScatterMin, strategy.ScatterMax,
}

// scattered returns the result of an operation for one element.
func scattered(op strategy.ScatterOp, x, update float32) float32 {
	switch op {
	case strategy.ScatterAdd:
		return x + update
	case strategy.ScatterSub:
		return x - update
	case strategy.ScatterMul:
		return x * update
	case strategy.ScatterDiv:
		return x / update
	case strategy.ScatterMin:
		return min(x, update)
	case strategy.ScatterMax:
		return max(x, update)
	}
	return update
}

func TestReplicasScatterTheirOwnNumbersOfRows(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		rows := func(r int) (indices []int32, updates []float32) { // row 0 has no update
			for i := range r {
				indices, updates = append(indices, int32(i+1)), append(updates, 2)
			}
			return append(indices, 4), append(updates, 8)
		}
		for _, op := range scatters {
			for _, o := range []strategy.VariableOptions{
				{LocalWrites: true}, {Aggregation: strategy.AggregateFirst}, {Aggregation: strategy.AggregateSum},
			} {
				if o.Aggregation == strategy.AggregateSum && op >= strategy.ScatterUpdate {
					continue
				}
				v, err := s.NewVariable(ctx, []float32{5, 5, 5, 5, 5}, o)
				require.NoError(t, err)
				_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
					indices, updates := rows(rc.ReplicaIDInSyncGroup())
					return rc.Scatter(op, v, indices, updates)
				})
				require.NoError(t, err)
				for r, got := range strategytest.Values(t, v, n) {
					want := []float32{5, 5, 5, 5, 5}
					from, to := r, r+1
					switch o.Aggregation {
					case strategy.AggregateFirst:
						from, to = 0, 1
					case strategy.AggregateSum:
						from, to = 0, n
					}
					for k := from; k < to; k++ {
						indices, updates := rows(k)
						for i, row := range indices {
							want[row] = scattered(op, want[row], updates[i])
						}
					}
					require.Equal(t, want, got, "%s, %s, replica %d", op, o.Aggregation, r)
				}
				require.NoError(t, v.Close())
			}
		}
	})
}

func TestScatterRefusesAReplicasRowsThatDoNotFit(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	v, err := s.NewVariable(ctx, []float32{5, 5, 5}, strategy.VariableOptions{Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		return rc.Scatter(strategy.ScatterAdd, v, make([]int32, 1+rc.ReplicaIDInSyncGroup()), []float32{1})
	})
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	require.ErrorContains(t, err, "replica 1")
	require.Equal(t, []any{[]float32{5, 5, 5}, []float32{5, 5, 5}}, strategytest.Values(t, v, 2))
}

func TestScatterIgnoresIndicesThatNameNoRow(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		start := []float32{1, 2, 3, 4}
		v, err := s.NewVariable(ctx, start, strategy.VariableOptions{Aggregation: strategy.AggregateFirst})
		require.NoError(t, err)
		for _, op := range scatters {
			for _, indices := range []any{
				[]int64{1 << 32, -1, 4, math.MinInt64, 1<<32 + 1}, []uint64{1 << 63, math.MaxUint64, 1 << 32, 4, 1<<33 + 2},
				[]int32{-1, 4, math.MinInt32, math.MaxInt32, -4}, []uint8{4, 255, 128, 5, 6}, []int8{-1, 4, 127, -128, -4},
			} {
				require.NoError(t, v.Scatter(ctx, op, indices, []float32{50, 60, 70, 80, 90}))
				require.Equal(t, start, strategytest.Values(t, v, 1)[0], "%s at %v", op, indices)
			}
		}
	})
}

func TestScatterOfNoRowsChangesNothing(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		start := [][]float32{{1, 2}, {3, 4}}
		for _, a := range []strategy.VariableAggregation{strategy.AggregateFirst, strategy.AggregateSum} {
			v, err := s.NewVariable(ctx, start, strategy.VariableOptions{Aggregation: a})
			require.NoError(t, err)
			updates := tensors.FromShape(shapes.Make(dtypes.Float32, 0, 2))
			for _, op := range scatters {
				if a == strategy.AggregateSum && op >= strategy.ScatterUpdate {
					continue
				}
				require.NoError(t, v.Scatter(ctx, op, []int32{}, updates))
				_, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
					return []*graph.Node{rc.Scatter(op, v, in[0], in[1])}
				}, strategy.FunctionOptions{}).Run(ctx, []int32{}, updates)
				require.NoError(t, err)
				_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
					return rc.Scatter(op, v, []int32{}, updates)
				})
				require.NoError(t, err)
				require.Equal(t, start, strategytest.Values(t, v, 1)[0], op)
			}
		}
	})
}

func TestScatterOfIntegersIsInTurn(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		o := strategy.VariableOptions{Aggregation: strategy.AggregateFirst}
		for _, c := range []struct {
			op                strategy.ScatterOp
			start, by, expect any
		}{
			{strategy.ScatterDiv, []uint8{7, 103}, []uint8{16, 16}, []uint8{7, 0}},
			{strategy.ScatterDiv, []uint8{7, 103}, []uint8{3, 2}, []uint8{7, 17}},
			{strategy.ScatterDiv, []int8{7, -103}, []int8{16, -16}, []int8{7, 0}},
			{strategy.ScatterDiv, []int8{7, -103}, []int8{5, -3}, []int8{7, 6}},
			{strategy.ScatterDiv, []int32{7, math.MaxInt32}, []int32{1 << 16, 1 << 16}, []int32{7, 0}},
			{strategy.ScatterSub, []uint8{7, 103}, []uint8{3, 2}, []uint8{7, 98}},
			{strategy.ScatterSub, []uint8{7, 1}, []uint8{3, 2}, []uint8{7, 252}},
			{strategy.ScatterMul, []uint8{7, 103}, []uint8{16, 17}, []uint8{7, 103 * 16 * 17 % 256}},
			// A product of the updates would be infinite.
			{strategy.ScatterMul, []float32{7, 0x1p-100}, []float32{0x1p100, 0x1p100}, []float32{7, 0x1p100}},
			{strategy.ScatterDiv, []float32{7, 0x1p100}, []float32{0x1p100, 0x1p100}, []float32{7, 0x1p-100}},
		} {
			v, err := s.NewVariable(ctx, c.start, o)
			require.NoError(t, err)
			require.NoError(t, v.Scatter(ctx, c.op, []int32{1, 1}, c.by))
			for _, got := range strategytest.Values(t, v, s.NumReplicasInSync()) {
				require.Equal(t, c.expect, got, "%s of %v by %v", c.op, c.start, c.by)
			}
		}
	})
}

func TestAStepReadsAndDifferentiatesAfterAScatter(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		v, err := s.NewVariable(ctx, []float32{1, 2, 3, 4}, strategy.VariableOptions{Aggregation: strategy.AggregateFirst})
		require.NoError(t, err)
		out, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			rc.Scatter(strategy.ScatterMul, v, in[0], in[1])
			x := rc.Read(v)
			return graph.Gradient(graph.ReduceAllSum(graph.Mul(x, x)), x)
		}, strategy.FunctionOptions{}).Run(ctx, []int32{1}, []float32{10})
		require.NoError(t, err)
		got, err := out[0].Local(ctx, 0)
		require.NoError(t, err)
		require.Equal(t, []float32{2, 40, 6, 8}, got.Value())
	})
}

// An index out of range has no effect, and its update has a zero gradient.
func TestAnUpdateOfNoRowHasNoGradient(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		for op, want := range map[strategy.ScatterOp][]float32{
			strategy.ScatterAdd: {0, 0, 100, 1000}, strategy.ScatterSub: {0, 0, -100, -1000}, strategy.ScatterMax: {0, 0, 100,
				1000},
		} {
			v, err := s.NewVariable(ctx, []float32{1, 2, 3}, strategy.VariableOptions{LocalWrites: true})
			require.NoError(t, err)
			results, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				indices := graph.Const(rc.Graph(), []int64{-1, 7, 1, 2})
				now := rc.Scatter(op, v, indices, in[0])
				weighted := graph.ReduceAllSum(graph.Mul(now, graph.Const(rc.Graph(), []float32{10, 100, 1000})))
				return graph.Gradient(weighted, in[0])
			}, strategy.FunctionOptions{}).Run(ctx, []float32{9, 9, 9, 9})
			require.NoError(t, err)
			got, err := results[0].Local(ctx, 0)
			require.NoError(t, err)
			assert.Equal(t, want, got.Value(), "%v", op)
		}
	})
}
