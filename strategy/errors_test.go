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

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The errors for common mistakes.
func TestErrorsOfFirstStepsSayWhatToDo(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	sgd := optimizer.StochasticGradientDescent().Done()
	x := [][]float32{{1}, {2}}
	dense := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return layers.Dense(rc.Scope("a"), in[0], true, 2)
	}
	mean := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(dense(rc, in))
	}
	for name, c := range map[string]struct {
		store *model.Store
		loss  train.Loss
		batch []any
		want  []string
	}{
		"no store":         {nil, mean, []any{x}, []string{"no store of variables"}},
		"no loss function": {model.NewStore(), nil, []any{x}, []string{"no loss function"}},
		"no loss": {model.NewStore(), func(*strategy.ReplicaContext, []*graph.Node) *graph.Node { return nil },
			[]any{x}, []string{"returned no node"}},
		"a loss for each row": {model.NewStore(), dense, []any{x}, []string{"the loss is (Float32)[1, 2]",
			"return a float scalar"}},
		"an argument too few": {model.NewStore(), func(rc *strategy.ReplicaContext,
			in []*graph.Node) *graph.Node {
			return in[1]
		}, []any{x}, []string{"index out of range [1]", "the step received 1 arguments"}},
		"arguments in a slice": {model.NewStore(), mean, []any{[]any{x, x}}, []string{"argument 0",
			"give its leaves one by one"}},
	} {
		t.Run(name, func(t *testing.T) {
			step, err := train.New(s, c.store, sgd, c.loss, train.Options{})
			if err == nil {
				_, err = step.Run(ctx, c.batch...)
			}
			require.Error(t, err)
			for _, want := range c.want {
				assert.ErrorContains(t, err, want)
			}
		})
	}
}

func TestNilsAreNamed(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	ctx := context.Background()
	_, err := s.Function(nil, strategy.FunctionOptions{}).Run(ctx)
	assert.ErrorContains(t, err, "there is no step function")
	_, err = train.New(nil, model.NewStore(), optimizer.Adam().Done(), nil, train.Options{})
	assert.ErrorContains(t, err, "give a strategy")
	_, err = train.New(s, model.NewStore(), optimizer.Adam().Done(), nil, train.Options{})
	assert.ErrorContains(t, err, "there is no loss function")
	_, err = strategy.New(nil, strategy.Options{})
	assert.ErrorContains(t, err, "system.Open")
	_, err = strategy.NewAheadOfTime(nil, strategy.Options{})
	assert.ErrorContains(t, err, "system.Describe")
	var trace *strategy.TraceError
	_, err = strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), func(_ *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(in[0])
	}, train.Options{})).Run(ctx, []float32{1})
	require.ErrorAs(t, err, &trace)
	assert.Empty(t, trace.Where, "no line of the step's own has panicked")
}
