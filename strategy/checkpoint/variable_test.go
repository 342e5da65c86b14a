package checkpoint_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// A trained variable of the scope is saved with those of the store, and restored before the first
// step.
func TestVariablesOfTheScopeAreSaved(t *testing.T) {
	ctx := context.Background()
	sys, d := plugintest.System(t, 2), openRun(t)
	x := [][]float32{{1, 2}, {3, 4}}
	open := func() (*strategy.TPUStrategy, *model.Store, *train.Step, *strategy.Variable) {
		s := strategytest.On(t, sys, strategy.Options{Replicas: 2})
		w, err := s.NewVariable(ctx, [][]float32{{1}, {-1}}, strategy.VariableOptions{Name: "w"})
		require.NoError(t, err)
		store := model.NewStore()
		return s, store, strategytest.OK(train.New(s, store, optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
			in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(graph.Square(graph.MatMul(in[0], rc.Read(w))))
		}, train.Options{})), w
	}
	loss := func(step *train.Step) float64 {
		l, err := step.Run(ctx, x)
		require.NoError(t, err)
		value, err := l.Float64(ctx)
		require.NoError(t, err)
		return value
	}
	s, store, step, w := open()
	for range 3 {
		loss(step)
	}
	group := checkpoint.StrategyGroup(s, store)
	require.Len(t, group.With(w).Variables, len(group.Variables), "it is in the group already")
	require.NoError(t, d.Save(ctx, 3, group, checkpoint.SaveOptions{}))
	want := loss(step)

	s, store, step, _ = open()
	restoration(t, d, checkpoint.StrategyGroup(s, store), checkpoint.RestoreOptions{})
	require.Equal(t, want, loss(step))
}

// A checkpoint without a trained variable of the scope is restored. The error names the variable
// and nothing changes, or AllowMissing leaves it unchanged.
func TestAnOlderCheckpointLacksAVariableOfTheScope(t *testing.T) {
	ctx := context.Background()
	sys, d := plugintest.System(t, 2), openRun(t)
	x := [][]float32{{1, 2}, {3, 4}}
	loss := func(w *strategy.Variable) train.Loss {
		return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			y := graph.Mul(in[0], graph.ExpandLeftToRank(rc.Scope().VariableWithValue("b",
				[]float32{1, 1}).NodeValue(rc.Graph()), 2))
			if w != nil {
				y = graph.MatMul(y, rc.Read(w))
			}
			return graph.ReduceAllMean(graph.Square(y))
		}
	}
	old, store := strategytest.On(t, sys, strategy.Options{Replicas: 2}), model.NewStore()
	_, err := strategytest.OK(train.New(old, store, optimizer.Adam().Done(), loss(nil), train.Options{})).Run(ctx, x)
	require.NoError(t, err)
	require.NoError(t, d.Save(ctx, 1, checkpoint.StrategyGroup(old, store), checkpoint.SaveOptions{}))

	s, store := strategytest.On(t, sys, strategy.Options{Replicas: 2}), model.NewStore()
	w, err := s.NewVariable(ctx, [][]float32{{3}, {-1}}, strategy.VariableOptions{Name: "w"})
	require.NoError(t, err)
	c, err := d.Latest(ctx)
	require.NoError(t, err)
	defer c.Close()
	err = c.Restore(ctx, checkpoint.StrategyGroup(s, store), checkpoint.RestoreOptions{})
	var mismatch *checkpoint.MismatchError
	require.ErrorAs(t, err, &mismatch)
	require.Equal(t, []string{"w"}, mismatch.Missing)
	require.Equal(t, 0, store.NumVariables())
	require.NoError(t, c.Restore(ctx, checkpoint.StrategyGroup(s, store), checkpoint.RestoreOptions{AllowMissing: true}))
	value, err := w.Value(ctx)
	require.NoError(t, err)
	require.Equal(t, [][]float32{{3}, {-1}}, value.Value())
	_, err = strategytest.OK(train.New(s, store, optimizer.Adam().Done(), loss(w), train.Options{})).Run(ctx, x)
	require.NoError(t, err)
}

// A checkpoint with a variable of the scope is restored before the program creates it. The loss of
// its value must be reported.
func TestARestoreWithoutTheVariableOfTheScope(t *testing.T) {
	ctx := context.Background()
	sys, d := plugintest.System(t, 2), openRun(t)
	s, store := strategytest.On(t, sys, strategy.Options{Replicas: 2}), model.NewStore()
	_, err := s.NewVariable(ctx, float32(3), strategy.VariableOptions{Name: "w"})
	require.NoError(t, err)
	require.NoError(t, d.Save(ctx, 1, checkpoint.StrategyGroup(s, store), checkpoint.SaveOptions{}))

	s, store = strategytest.On(t, sys, strategy.Options{Replicas: 2}), model.NewStore()
	c, err := d.Latest(ctx)
	require.NoError(t, err)
	defer c.Close()
	err = c.Restore(ctx, checkpoint.StrategyGroup(s, store), checkpoint.RestoreOptions{})
	var mismatch *checkpoint.MismatchError
	require.ErrorAs(t, err, &mismatch, "the store has %d variables", store.NumVariables())
	require.Equal(t, []string{"w"}, mismatch.Unexpected)
	require.Equal(t, 0, store.NumVariables())
}
