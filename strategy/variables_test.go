package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// A variable that its store has lost can be neither pulled nor pushed, and says so.
func TestAVariableDeletedFromItsStoreIsNamed(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	store := model.NewStore()
	step := train.New(s, store, optimizer.StochasticGradientDescent().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(graph.Square(layers.Dense(rc.Scope("dense"), in[0], true, 1)))
	})
	_, err := step.Run(ctx, [][]float32{{1}, {2}})
	require.NoError(t, err)
	store.DeleteVariable("/dense/dense/biases")
	for _, err := range []error{s.Variables(store).Pull(ctx), s.Variables(store).Push(ctx)} {
		require.ErrorContains(t, err, `variable "/dense/dense/biases": it is on the devices, but no longer in its store`)
		assert.Equal(t, strategy.ValueError, strategy.KindOf(err))
	}
}

func TestHostValuesThatDoNotFitAreErrorsOfAKind(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	var none logical.Annotation
	_, mirrored := s.Mirror(ctx, []any{1, 2}, none)
	_, few := s.PerReplica(ctx, []any{1}, none)
	_, other := s.PerReplica(ctx, []any{1, []int{1}}, none)
	_, uneven := s.SplitBatch(ctx, []int{1, 2, 3}, none, false)
	_, scalar := s.SplitBatch(ctx, 1, none, false)
	for text, err := range map[string]error{
		"strategy: mirror: no tensor: a []interface {} is a nest":                                        mirrored,
		"strategy: per-replica value: 1 values for 2 replicas; give one value for each replica":          few,
		"strategy: per-replica value: that of replica 1 has shape (Int64)[1], that of replica 0 (Int64)": other,
		"a batch of 3 rows does not divide among 2 replicas; pad it to 4 or drop 1 rows":                 uneven,
		"a scalar is no batch; mirror it":                                                                scalar,
	} {
		var own *strategy.Error
		require.ErrorAs(t, err, &own)
		assert.ErrorContains(t, err, text)
		assert.Equal(t, strategy.ValueError, strategy.KindOf(err))
	}
}
