package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/nest"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// dense returns a step with one dense layer in the named scope.
func dense(scope string) strategy.StepFunc {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{layers.Dense(rc.Scope(scope), in[0], true, 4)}
	}
}

func denseLoss(scope string) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		return graph.ReduceAllMean(dense(scope)(rc, in)[0])
	}
}

func TestARuleThatReachesNothingIsAnErrorEverywhere(t *testing.T) {
	ctx := context.Background()
	x := [][]float32{{1, 2}, {3, 4}}
	rules := logical.Rules{logical.Match("/hiden/dense/weights", logical.SplitInto(1, 2)),
		logical.Match("/hidden/dense/biases", logical.SplitInto(1, 2))}
	calls := map[string]func(s *strategy.TPUStrategy, store *model.Store) error{
		"Function": func(s *strategy.TPUStrategy, store *model.Store) error {
			_, err := s.Function(dense("hidden"), strategy.FunctionOptions{Store: store}).Run(ctx, x)
			return err
		},
		"NestFunction": func(s *strategy.TPUStrategy, store *model.Store) error {
			_, err := nest.New(s, func(rc *strategy.ReplicaContext, in []any) any {
				return dense("hidden")(rc, []*graph.Node{in[0].(*graph.Node)})[0]
			}, strategy.FunctionOptions{Store: store}).Run(ctx, x)
			return err
		},
		"bound": func(s *strategy.TPUStrategy, store *model.Store) error {
			_, err := s.Function(dense("hidden"), strategy.FunctionOptions{Store: store}).Bind(ctx, x)
			return err
		},
		"TrainStep": func(s *strategy.TPUStrategy, store *model.Store) error {
			_, err := strategytest.OK(train.New(s, store, optimizer.StochasticGradientDescent().Done(), denseLoss("hidden"),
				train.Options{})).Run(ctx, x)
			return err
		},
		"a loop": func(s *strategy.TPUStrategy, store *model.Store) error {
			_, err := strategytest.OK(train.New(s, store, optimizer.StochasticGradientDescent().Done(), denseLoss("hidden"),
				train.Options{})).RunSteps(ctx, []any{x}, []any{x})
			return err
		},
		"lowered only": func(s *strategy.TPUStrategy, store *model.Store) error {
			_, err := s.Function(dense("hidden"), strategy.FunctionOptions{Store: store}).Lowered(ctx, x)
			return err
		},
		"a captured variable": func(s *strategy.TPUStrategy, _ *model.Store) error {
			v, err := s.NewVariable(ctx, x, strategy.VariableOptions{Name: "/hidden/dense/weights"})
			require.NoError(t, err)
			_, err = s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{rc.Read(v)}
			}, strategy.FunctionOptions{}).Run(ctx)
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			s := strategytest.New(t, 1, 2, strategy.Options{Variables: rules})
			err := call(s, model.NewStore())
			var wrong *strategy.OptionError
			require.ErrorAs(t, err, &wrong)
			assert.Equal(t, "Variables", wrong.Option)
			assert.ErrorContains(t, err, `rule 0 ("/hiden/dense/weights" to 1,2) matches no variable; the nearest names are `+
				`"/hidden/dense/weights" (Float32[2 `)
		})
	}
}

func TestARuleOfAnotherRankNamesTheVariable(t *testing.T) {
	s := strategytest.New(t, 1, 2, strategy.Options{
		Variables: logical.Rules{logical.Match("biases", logical.SplitInto(1, 2))}})
	_, err := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		denseLoss("hidden"), train.Options{})).Run(context.Background(), [][]float32{{1, 2}})
	var wrong *strategy.OptionError
	require.ErrorAs(t, err, &wrong)
	assert.ErrorContains(t, err, `rule 0 ("biases" to 1,2) splits variables of rank 2, but matches only variables of `+
		`other ranks: "/hidden/dense/biases" (Float32[4])`)
}

func TestRulesOfOneModelAmongSeveral(t *testing.T) {
	ctx := context.Background()
	x := [][]float32{{1, 2}, {3, 4}}
	rules := logical.Rules{
		logical.Match("/encoder/.*weights", logical.SplitInto(1, 2)),
		logical.Match("/decoder/.*weights", logical.SplitInto(1, 2)),
	}
	open := func(t *testing.T, rules logical.Rules) *strategy.TPUStrategy {
		return strategytest.New(t, 1, 2, strategy.Options{Variables: rules})
	}
	t.Run("functions made before the first is traced", func(t *testing.T) {
		s, store := open(t, rules), model.NewStore()
		encode := s.Function(dense("encoder"), strategy.FunctionOptions{Store: store})
		decode := s.Function(dense("decoder"), strategy.FunctionOptions{Store: store})
		for _, f := range []*strategy.Function{encode, decode} {
			_, err := f.Run(ctx, x)
			require.NoError(t, err)
		}
	})
	t.Run("two training steps of two stores", func(t *testing.T) {
		s := open(t, rules)
		a := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
			denseLoss("encoder"), train.Options{}))
		b := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
			denseLoss("decoder"), train.Options{}))
		for _, step := range []*train.Step{a, b} {
			_, err := step.Run(ctx, x)
			require.NoError(t, err)
		}
	})
	t.Run("the last function tells", func(t *testing.T) {
		s, store := open(t, append(rules[:2:2], logical.Match("/decodr/", logical.SplitInto(1, 2)))), model.NewStore()
		encode := s.Function(dense("encoder"), strategy.FunctionOptions{Store: store})
		decode := s.Function(dense("decoder"), strategy.FunctionOptions{Store: store})
		_, err := encode.Run(ctx, x)
		require.NoError(t, err)
		_, err = decode.Run(ctx, x)
		require.ErrorContains(t, err, `rule 2 ("/decodr/" to 1,2) matches no variable; the nearest names are "/decoder/`)
	})
	t.Run("a training step has its whole model", func(t *testing.T) {
		s, store := open(t, rules), model.NewStore()
		step := strategytest.OK(train.New(s, store, optimizer.StochasticGradientDescent().Done(), denseLoss("encoder"),
			train.Options{}))
		s.Function(dense("encoder"), strategy.FunctionOptions{Store: store})
		_, err := step.Run(ctx, x)
		require.ErrorContains(t, err, `rule 1`)
	})
	t.Run("variables that the step does not use", func(t *testing.T) {
		s, store := open(t, rules[1:]), model.NewStore()
		store.RootScope().In("decoder").VariableWithShape("weights", shapes.Make(dtypes.Float32, 2, 4))
		_, err := s.Function(dense("encoder"), strategy.FunctionOptions{Store: store}).Run(ctx, x)
		require.NoError(t, err)
	})
	t.Run("variables of the scope", func(t *testing.T) {
		s := open(t, rules[1:])
		v, err := s.NewVariable(ctx, x, strategy.VariableOptions{Name: "/decoder/weights"})
		require.NoError(t, err)
		require.NoError(t, v.Close())
		_, err = s.Function(dense("encoder"), strategy.FunctionOptions{Store: model.NewStore()}).Run(ctx, x)
		require.NoError(t, err)
	})
	t.Run("optional", func(t *testing.T) {
		rule := rules[1]
		rule.Optional = true
		s := open(t, logical.Rules{rules[0], rule})
		_, err := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
			denseLoss("encoder"), train.Options{})).Run(ctx, x)
		require.NoError(t, err)
	})
	t.Run("behind a rule that takes all", func(t *testing.T) {
		s := open(t, append(logical.Rules{logical.Match("weights", logical.SplitInto(1, 2))}, rules[0]))
		_, err := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
			denseLoss("encoder"), train.Options{})).Run(ctx, x)
		require.NoError(t, err)
	})
	t.Run("a step without variables", func(t *testing.T) {
		s := open(t, rules)
		_, err := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Neg(in[0])}
		}, strategy.FunctionOptions{}).Run(ctx, x)
		require.NoError(t, err)
	})
}
