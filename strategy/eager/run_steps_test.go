package eager_test

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/input"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/feed"
)

func TestRunStepsKeepTheLastOutputs(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		n := s.NumReplicasInSync()
		d, err := input.Distribute(input.Range(4*n).Batch(n, false), input.Options{Replicas: n})
		require.NoError(t, err)
		it, err := feed.Iterate(ctx, s, d)
		require.NoError(t, err)
		defer it.Close()
		e := eager.Of(s)
		m, err := e.RunStepsOnIterator(ctx, func(ctx context.Context, m *eager.MultiStepContext, in any) error {
			require.NoError(t, m.SetLastStepOutput(ctx, "total", in, strategy.Sum))
			_, err := e.CallForEachReplica(ctx, func(rc *eager.ReplicaContext, args ...any) (any, error) {
				return nil, m.SetNonTensorOutput(rc.Context(), "id", rc.ReplicaIDInSyncGroup())
			}, in)
			return err
		}, it, 3, map[string]any{"before": 1})
		require.NoError(t, err)
		total, err := m.LastStepOutputs()["total"].(*strategy.Mirrored).Value(ctx)
		require.NoError(t, err)
		want := int64(0)
		for r := range n {
			want += int64(2*n + r)
		}
		require.Equal(t, []int64{want}, total.Value())
		require.Equal(t, 1, m.LastStepOutputs()["before"])
		require.Len(t, m.NonTensorOutputs()["id"], n)
		// One of four steps is left.
		m, err = e.RunStepsOnIterator(ctx, func(_ context.Context, m *eager.MultiStepContext, _ any) error {
			steps, _ := m.LastStepOutputs()["steps"].(int)
			return m.SetLastStepOutput(ctx, "steps", steps+1)
		}, it, 5, nil)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, errkind.OutOfRangeError, errkind.KindOf(err))
		require.ErrorContains(t, err, "after 1 of 5 steps")
		require.Equal(t, 1, m.LastStepOutputs()["steps"], "the steps that ran")
		_, err = e.RunStepsOnIterator(ctx, func(context.Context, *eager.MultiStepContext, any) error { return nil }, it, 1,
			nil)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	})
}
