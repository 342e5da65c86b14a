package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Dropout draws from the store's one random state: replicas of one step share the
// mask, steps do not.
func TestReplicasShareDropoutMasks(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	store := model.NewStore()
	require.NoError(t, store.SetRNGStateFromSeed(3))
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{layers.DropoutStatic(rc.Scope(), logical.Split(in[0], 2), 0.5)}
	}, strategy.FunctionOptions{Store: store, Training: true})
	var masks [][]float32
	for range 2 {
		out, err := f.Run(ctx, tensors.FromScalarAndDimensions(float32(1), 64))
		require.NoError(t, err)
		first, err := out[0].Local(ctx, 0)
		require.NoError(t, err)
		second, err := out[0].Local(ctx, 1)
		require.NoError(t, err)
		assert.True(t, first.Equal(second))
		masks = append(masks, first.Value().([]float32))
	}
	assert.NotEqual(t, masks[0], masks[1])
	assert.Contains(t, masks[0], float32(0))
	assert.Contains(t, masks[0], float32(2))
}

// With numbers of their own, replicas have masks of their own: the logical devices of
// a replica the same, each step others, and the store's state stays one. Other
// replicas do not change what a replica draws.
func TestReplicasDrawRandomNumbersOfTheirOwn(t *testing.T) {
	ctx := context.Background()
	masks := func(replicas, logicalDevices int, loop bool) (all [][]float32) {
		s := strategytest.New(t, replicas, logicalDevices)
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(3))
		f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			rc.OwnRandomNumbers()
			rc.OwnRandomNumbers()
			x := logical.Split(graph.OnesLike(graph.BroadcastPrefix(graph.ReduceAllMean(in[0]), 64)), logicalDevices)
			return []*graph.Node{layers.DropoutStatic(rc.Scope(), layers.DropoutStatic(rc.Scope(), x, 0.5), 0.5)}
		}, strategy.FunctionOptions{Store: store, Training: true})
		for range 3 {
			arg := any(float32(1))
			if loop {
				stacked, err := s.StackBatches(ctx, []any{make([]float32, replicas), make([]float32, replicas)}, logical.Annotation{})
				require.NoError(t, err)
				arg = stacked
			}
			out, err := f.Run(ctx, arg)
			require.NoError(t, err)
			for r := range replicas {
				mask, err := out[0].Local(ctx, r)
				require.NoError(t, err)
				all = append(all, mask.Value().([]float32))
			}
		}
		state, ok := s.Variables(store).Lookup("/" + model.RNGStateVariableName)
		require.True(t, ok)
		first, err := state.Local(ctx, 0)
		require.NoError(t, err)
		for r := range replicas {
			other, err := state.Local(ctx, r)
			require.NoError(t, err)
			assert.True(t, first.Equal(other), "replica %d", r)
		}
		return all
	}
	for _, loop := range []bool{false, true} {
		got := masks(4, 2, loop)
		for i, mask := range got {
			for j := range i {
				assert.NotEqual(t, mask, got[j], "%d %d", i, j)
			}
			zeros := 0
			for _, x := range mask {
				if x == 0 {
					zeros++
				}
			}
			assert.InDelta(t, 48, zeros, 14, "a share of 3/4")
		}
		pair := masks(2, 1, loop)
		for step := range 3 {
			assert.Equal(t, got[4*step:4*step+2], pair[2*step:2*step+2], "step %d", step)
		}
	}
}

func TestRandomNumbersAreSplitFirst(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	for name, store := range map[string]*model.Store{"drawn before": model.NewStore(), "no store": nil} {
		_, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			if store != nil {
				in[0] = layers.DropoutStatic(rc.Scope(), in[0], 0.5)
			}
			rc.OwnRandomNumbers()
			return in
		}, strategy.FunctionOptions{Store: store, Training: true}).Run(context.Background(), []float32{1, 2})
		var trace *strategy.TraceError
		require.ErrorAs(t, err, &trace, name)
		t.Log(err)
	}
}

// The TPU compiler takes the replicas' own generators, in a model with dropout.
func TestAOTStepsDrawRandomNumbersOfTheirOwn(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	strat := strategytest.Ahead(t, "v5e:2x4", strategy.Options{Replicas: 4, LogicalDevices: 2})
	store := model.NewStore()
	step := train.New(strat, store, optimizer.Adam().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		rc.OwnRandomNumbers()
		h := logical.Split(layers.Dense(rc.Scope("hidden"), in[0], true, 256), 1, 2)
		h = layers.DropoutStatic(rc.Scope("dropout"), h, 0.5)
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), h, true, 1), in[1])))
	})
	x, y := strategytest.BatchShapes(64)
	compiled, err := step.Compiled(context.Background(), x, y)
	require.NoError(t, err)
	assert.Contains(t, string(compiled.Module.Text), "rng_bit_generator")
}
