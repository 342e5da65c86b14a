package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

// A write from a sync-on-read variable reads its combined value if the target is mirrored, and its
// components if the target has a component per replica.
func TestASyncOnReadVariableAsAValue(t *testing.T) {
	ctx := context.Background()
	for _, p := range []int{1, 2} {
		s := strategytest.New(t, 2, p)
		onRead := func() *strategy.Variable {
			v, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
				Aggregation: strategy.AggregateSum})
			require.NoError(t, err)
			_, err = eager.Of(s).CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
				return rc.Assign(v, float32(2*rc.ReplicaIDInSyncGroup()+1))
			})
			require.NoError(t, err)
			return v
		}
		components := func(v *strategy.Variable) []any {
			var all []any
			for r := range 2 {
				part, err := v.Local(ctx, r)
				require.NoError(t, err)
				all = append(all, part.Value())
			}
			return all
		}
		value := onRead()
		to := onRead()
		require.NoError(t, to.Assign(ctx, value))
		require.Equal(t, []any{float32(2), float32(2)}, components(to))
		for _, aggregation := range []strategy.VariableAggregation{strategy.AggregateNone, strategy.AggregateSum} {
			v, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Aggregation: aggregation})
			require.NoError(t, err)
			require.Equal(t, errkind.TypeError, errkind.KindOf(v.Assign(ctx, value)))
			_, err = eager.Of(s).Update(ctx, v, func(u *eager.UpdateContext, _ ...any) (any, error) { return nil, nil }, value)
			if aggregation == strategy.AggregateNone {
				require.NoError(t, err)
			} else {
				require.Equal(t, errkind.TypeError, errkind.KindOf(err))
			}
		}
		apart, err := s.NewVariable(ctx, float32(10), strategy.VariableOptions{LocalWrites: true})
		require.NoError(t, err)
		require.NoError(t, apart.AssignAdd(ctx, value))
		require.Equal(t, []any{float32(11), float32(13)}, components(apart))
		require.NoError(t, to.Assign(ctx, apart), "its value is replica 0's")
		require.Equal(t, []any{float32(5.5), float32(5.5)}, components(to))
	}
}

func TestCheckpointRules(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		v, err := s.NewVariable(ctx, int64(7), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		require.NoError(t, v.RestoreValue(ctx, tensors.FromScalar(int64(7))))
		require.Equal(t, int64(7/n), strategytest.Values(t, v, n)[n-1])
		saved, err := v.SaveValue(ctx)
		require.NoError(t, err)
		require.Equal(t, int64(7/n*n), saved.Value())
		none, err := s.NewVariable(ctx, int64(7), strategy.VariableOptions{Synchronization: strategy.OnRead})
		require.NoError(t, err)
		_, err = none.SaveValue(ctx)
		require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	})
}
