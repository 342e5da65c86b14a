package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// The running averages of batch normalization are averaged over the replicas.
func TestReplicasShareTheAveragesOfBatchNormalisation(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	store := model.NewStore()
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{norm.BatchNorm(rc.Scope("norm"), logical.Split(in[0], 1, 2), -1).Done()}
	}, strategy.FunctionOptions{Store: store, Training: true})
	x, err := s.PerReplica(ctx, []any{[][]float32{{1, 2}, {3, 4}}, [][]float32{{5, 6}, {9, 10}}}, logical.Annotation{})
	require.NoError(t, err)
	for range 3 {
		_, err = f.Run(ctx, x)
		require.NoError(t, err)
	}
	want := map[string][]float32{"mean": {4.5, 5.5}, "variance": {2.5, 2.5}}
	for name, want := range want {
		v, ok := s.Variables(store).Lookup("/norm/batch_normalization/" + name)
		require.True(t, ok)
		for r := range 2 {
			got, err := v.Local(ctx, r)
			require.NoError(t, err)
			assert.InDeltaSlice(t, want, got.Value(), 1e-5, "%s of replica %d", name, r)
		}
	}
}

func TestReplicasMayNotWriteTheirOwnToWhatAllShare(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	for name, c := range map[string]struct {
		initial any
		value   func(rc *strategy.ReplicaContext, x, w *graph.Node) *graph.Node
		fails   bool
	}{
		"its own": {[]float32{1, 2}, func(_ *strategy.ReplicaContext, x, w *graph.Node) *graph.Node {
			return graph.Add(x,
				w)
		}, true},
		"its own integer": {[]int32{1, 2}, func(_ *strategy.ReplicaContext, x, w *graph.Node) *graph.Node {
			return graph.ConvertDType(x, dtypes.Int32)
		}, true},
		"its number": {[]int32{1, 2}, func(rc *strategy.ReplicaContext, _, w *graph.Node) *graph.Node {
			return graph.Add(w, rc.ReplicaIDInSyncGroup())
		}, true},
		"what is reduced": {[]float32{1, 2}, func(rc *strategy.ReplicaContext, x, w *graph.Node) *graph.Node {
			return graph.Add(rc.AllReduce(strategy.Sum, x), w)
		}, false},
		"what all have": {[]int32{1, 2}, func(_ *strategy.ReplicaContext, _,
			w *graph.Node) *graph.Node {
			return graph.Add(w, w)
		}, false},
		"what it broadcast": {[]float32{1, 2}, func(rc *strategy.ReplicaContext, x,
			_ *graph.Node) *graph.Node {
			return rc.Broadcast(x)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := model.NewStore()
			f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				w := rc.Scope().VariableWithValue("w", c.initial)
				w.SetNodeValue(c.value(rc, in[0], w.NodeValue(rc.Graph())))
				return in
			}, strategy.FunctionOptions{Store: store})
			x, err := s.PerReplica(ctx, []any{[]float32{1, 2}, []float32{3, 4}}, logical.Annotation{})
			require.NoError(t, err)
			_, err = f.Run(ctx, x)
			if c.fails {
				require.ErrorContains(t, err, `variable "/w"`)
				assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
				return
			}
			require.NoError(t, err)
		})
	}
}
