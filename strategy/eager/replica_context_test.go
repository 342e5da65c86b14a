package eager_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
)

func TestUpdateFollowsTheReducedGradient(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		v, err := s.NewVariable(ctx, float32(5), strategy.VariableOptions{})
		require.NoError(t, err)
		e := eager.Of(s)
		_, err = e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, _ ...any) (any, error) {
			gradient := tensors.FromScalar(float32(rc.ReplicaIDInSyncGroup() + 1))
			return rc.MergeCall(func(ctx context.Context, args ...any) (any, error) {
				reduced, err := e.BatchReduceTo(ctx, strategy.Sum, []eager.ReducePair{{Value: args[0], To: eager.To(v)}})
				if err != nil {
					return nil, err
				}
				return e.Update(ctx, v, func(u *eager.UpdateContext, args ...any) (any, error) {
					step, err := u.Ops().Mul(args[0], 0.1)
					if err != nil {
						return nil, err
					}
					return u.AssignSub(step)
				}, reduced[0])
			}, gradient)
		})
		require.NoError(t, err)
		for _, got := range strategytest.Values(t, v, n) {
			require.InDelta(t, 5-0.1*float64(n*(n+1)/2), got, 1e-6)
		}
	})
}
