package eager_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func TestArithmeticOfAPartialBatchLeavesItsPaddingOut(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, [][2]int{{2, 1}, {2, 2}, {3, 1}}, func(t *testing.T, s *strategy.TPUStrategy) {
		replicas := s.NumReplicasInSync()
		var rows []any
		total, count := 0.0, 0.0
		for r := range replicas { // replica r has r+1 rows, each of value r+1
			row := make([]float32, r+1)
			for i := range row {
				row[i] = float32(r + 1)
				total, count = total+float64(r+2), count+1
			}
			rows = append(rows, row)
		}
		batch, err := s.PerReplica(ctx, rows, logical.Annotation{})
		require.NoError(t, err)
		out, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
			return rc.Add(1, args[0])
		}, batch)
		require.NoError(t, err)
		mean, err := s.Reduce(ctx, strategy.Mean, out.(strategy.Value), 0)
		require.NoError(t, err)
		got, err := mean.Float64(ctx)
		require.NoError(t, err)
		assert.InDelta(t, total/count, got, 1e-6)
		last, err := out.(strategy.Value).Local(ctx, 0)
		require.NoError(t, err)
		assert.Equal(t, []float32{2}, last.Value())

		doubled, err := eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
			return rc.Sub(args[0], args[1])
		}, batch, out)
		require.NoError(t, err)
		sum, err := s.Reduce(ctx, strategy.Sum, doubled.(strategy.Value), 0)
		require.NoError(t, err)
		got, err = sum.Float64(ctx)
		require.NoError(t, err)
		assert.Equal(t, -count, got)

		_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
			return rc.Mul(args[0], []float32{1})
		}, batch)
		assert.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err), "%v", err)
	})
}

func TestAComponentOfNothingIsNoTensor(t *testing.T) {
	s := strategytest.On(t, plugintest.System(t, 2), strategy.Options{Replicas: 2})
	_, err := eager.Of(s).CallForEachReplica(context.Background(), func(rc *eager.ReplicaContext, _ ...any) (any, error) {
		return rc.Add(eager.Component{}, 1)
	})
	assert.Equal(t, errkind.TypeError, errkind.KindOf(err), "%v", err)
}
