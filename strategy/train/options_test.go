package train_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// takers are GoMLX's optimizers that accept gradients, except Adam, which most tests use.
var takers = map[string]func() optimizer.Interface{
	"sgd":     func() optimizer.Interface { return optimizer.StochasticGradientDescent().WithLearningRate(0.05).Done() },
	"adamax":  func() optimizer.Interface { return optimizer.Adam().Adamax().LearningRate(0.02).Done() },
	"adamw":   func() optimizer.Interface { return optimizer.Adam().WeightDecay(0.1).LearningRate(0.02).Done() },
	"rmsprop": func() optimizer.Interface { return optimizer.RMSProp().LearningRate(0.02).Done() },
}

// With microbatches, frozen variables and averages, every optimizer makes the update of the whole
// batch and changes no frozen variable.
func TestEveryOptimizerTakesTheOptions(t *testing.T) {
	sys := plugintest.System(t, 2)
	for name, opt := range takers {
		t.Run(name, func(t *testing.T) {
			o := train.Options{Freeze: []string{`^/wide/`}, Average: 0.5}
			want := trainOn(t, strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 1}), opt(), odd(1), o,
				sums(8, 8)...)
			o.Accumulate = 2
			got := trainOn(t, strategytest.On(t, sys, sharded(2, 1, logical.ShardGradients)), opt(), odd(1), o, sums(8, 8)...)
			want.equals(t, got, 1e-4)
			for path := range got.values {
				if path != "/wide/dense/weights" && path != "/wide/dense/biases" {
					assert.NotContains(t, path, "wide")
				}
			}
		})
	}
}

// Processes run one step together, also with rows that the microbatches do not divide.
func TestProcessesAccumulateAndAverage(t *testing.T) {
	sys := plugintest.System(t, 4)
	o := train.Options{Freeze: []string{`^/odd/`}, Average: 0.5}
	adam := func() optimizer.Interface { return optimizer.Adam().LearningRate(0.02).Done() }
	want := trainOn(t, strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 1}), adam(), odd(1), o,
		sums(12, 12)...)
	o.Accumulate = 2
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2},
		sharded(4, 1, logical.ShardParameters), func(ctx context.Context, s *strategy.TPUStrategy) error {
			store := strategytest.SeededStore()
			store.SetParam(model.ParamInitialSeed, int64(42))
			step := strategytest.OK(train.New(s, store, adam(), odd(1), o))
			for i, batch := range sums(12, 12) {
				loss, err := step.Run(ctx, batch...)
				if err != nil {
					return err
				}
				value, err := loss.Float64(ctx)
				if err != nil {
					return err
				}
				assert.InDelta(t, want.losses[i], value, 1e-5)
			}
			if err := step.SwapAverages(ctx); err != nil {
				return err
			}
			if err := s.Variables(store).Pull(ctx); err != nil {
				return err
			}
			for _, path := range []string{"/out/dense/weights", "/wide/dense/weights"} {
				got, err := store.GetVariable(path).Value()
				if err != nil {
					return err
				}
				assert.True(t, want.values["/averages/train_step"+path].InDelta(got, 1e-4), path)
			}
			return s.Variables(store).Push(ctx)
		}))
}

// A step from a file processes microbatches and updates averages like the saved step.
func TestASavedStepAccumulatesAndAverages(t *testing.T) {
	sys := plugintest.System(t, 4)
	opts := sharded(2, 2, logical.ShardOptimizer)
	s := strategytest.On(t, sys, opts)
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.02).Done(), odd(2),
		train.Options{Accumulate: 2, Average: 0.5, Freeze: []string{"wide"}}))
	strategytest.Losses(t, step, 0, 1)
	require.NoError(t, s.Variables(store).Pull(t.Context()))
	x, y := strategytest.Batch(0)
	compiled, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, stepfile.Save(t.Context(), &file, compiled))
	kept, err := store.Clone()
	require.NoError(t, err)
	want := strategytest.Losses(t, step, 1, 3)
	require.NoError(t, step.SwapAverages(t.Context()))
	other := strategytest.On(t, sys, opts)
	loaded, err := stepfile.LoadTrain(t.Context(), other, &file, kept)
	require.NoError(t, err)
	assert.Equal(t, want, strategytest.Losses(t, loaded, 1, 3))
	require.NoError(t, loaded.SwapAverages(t.Context()))
	requireAlike(t, values(t, s, store), values(t, other, kept), 1e-6)
}

// The options compile for TPUs.
func TestMicrobatchesCompileAheadOfTime(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	s := strategytest.Ahead(t, "v5e:2x2", sharded(2, 2, logical.ShardParameters))
	step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), odd(2),
		train.Options{Accumulate: 4, Average: 0.999, AverageWarmUp: true, Freeze: []string{"wide"}, NonFinite: train.Skip,
			ClipNorm: 1, Norms: true}))
	x, y := strategytest.BatchShapes(16)
	_, err := step.Compiled(t.Context(), x, y)
	require.NoError(t, err)
}

// libtpu terminates the process for a reduce-scatter over replicas whose order mixes the slices, as
// TensorFlow's assignment does here.
func TestStateIsSharedOutOverSlices(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	for _, state := range []logical.StateSharding{logical.ShardOptimizer, logical.ShardGradients,
		logical.ShardParameters} {
		s := strategytest.Ahead(t, "2x v5litepod-16", sharded(32, 1, state))
		step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), odd(1), train.Options{ClipNorm: 1}))
		x, y := strategytest.BatchShapes(64)
		_, err := step.Compiled(t.Context(), x, y)
		require.NoError(t, err, "%s", state)
	}
}

func TestAZeroStrategyIsAnError(t *testing.T) {
	loss := func(_ *strategy.ReplicaContext, in []*graph.Node) *graph.Node { return in[0] }
	_, err := train.New(new(strategy.TPUStrategy), model.NewStore(), optimizer.StochasticGradientDescent().Done(), loss,
		train.Options{})
	assert.ErrorIs(t, err, strategy.ErrClosed)
	_, err = train.NewEvaluation(new(strategy.TPUStrategy), model.NewStore(), loss, train.Options{})
	assert.ErrorIs(t, err, strategy.ErrClosed)
}
