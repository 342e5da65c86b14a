package strategy_test

import (
	"context"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// randomMeshes are the mesh sizes on which random numbers are compared.
var randomMeshes = [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}}

// drawn runs a step with two dropouts and returns the masks of the replicas, step by step. The
// logical devices of a replica must have the same mask, and all devices the same state.
func drawn(t *testing.T, s *strategy.TPUStrategy, mirrored, loop bool) (all [][]float32) {
	t.Helper()
	ctx := context.Background()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(3))
	masks, err := s.NewVariable(ctx, make([]float32, 64), strategy.VariableOptions{Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x := graph.OnesLike(graph.BroadcastPrefix(graph.ReduceAllMean(in[0]), 64))
		rc.Assign(masks, layers.DropoutStatic(rc.Scope(), layers.DropoutStatic(rc.Scope(), x, 0.5), 0.5))
		return nil
	}, strategy.FunctionOptions{Store: store, Training: true, MirroredRandomNumbers: mirrored})
	for range 3 {
		arg := any(float32(1))
		if loop {
			batch := make([]float32, s.NumReplicasInSync())
			stacked, err := s.StackBatches(ctx, []any{batch, batch}, logical.Annotation{})
			require.NoError(t, err)
			arg = stacked
		}
		_, err := f.Run(ctx, arg)
		require.NoError(t, err)
		for r := range s.NumReplicasInSync() {
			first, err := masks.LocalShard(ctx, r, 0)
			require.NoError(t, err)
			all = append(all, first.Value().([]float32))
			for p := range s.NumLogicalDevices() {
				other, err := masks.LocalShard(ctx, r, p)
				require.NoError(t, err)
				assert.True(t, first.Equal(other), "replica %d, logical device %d", r, p)
			}
		}
	}
	state, ok := s.Variables(store).Lookup("/" + model.RNGStateVariableName)
	require.True(t, ok)
	first, err := state.LocalShard(ctx, 0, 0)
	require.NoError(t, err)
	for r := range s.NumReplicasInSync() {
		for p := range s.NumLogicalDevices() {
			other, err := state.LocalShard(ctx, r, p)
			require.NoError(t, err)
			assert.True(t, first.Equal(other), "replica %d, logical device %d", r, p)
		}
	}
	return all
}

// Each replica has its own masks, each step has other masks, and the store has one state. The
// random numbers of a replica do not depend on the number of replicas.
func TestReplicasDrawRandomNumbersOfTheirOwn(t *testing.T) {
	for _, loop := range []bool{false, true} {
		pair := drawn(t, strategytest.New(t, 2, 1), false, loop)
		strategytest.OnMeshes(t, randomMeshes, func(t *testing.T, s *strategy.TPUStrategy) {
			r := s.NumReplicasInSync()
			got := drawn(t, s, false, loop)
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
				assert.InDelta(t, 48, zeros, 16, "a share of 3/4")
			}
			for step := 0; step < 3 && r > 1; step++ {
				assert.Equal(t, pair[2*step:2*step+2], got[r*step:r*step+2], "step %d", step)
			}
		})
	}
}

func TestReplicasDrawTheSameRandomNumbersByOption(t *testing.T) {
	one := drawn(t, strategytest.New(t, 1, 1), true, false)
	assert.NotEqual(t, one[0], one[1])
	assert.Equal(t, one, drawn(t, strategytest.New(t, 1, 1), false, false), "one replica draws from the state itself")
	strategytest.OnMeshes(t, randomMeshes, func(t *testing.T, s *strategy.TPUStrategy) {
		for i, mask := range drawn(t, s, true, false) {
			assert.Equal(t, one[i/s.NumReplicasInSync()], mask, "step %d", i)
		}
	})
}

// The seed of a replica's stream is one draw from the store's state, with the replica's number
// added to the key.
func TestTheStreamOfAReplica(t *testing.T) {
	ctx := context.Background()
	const replicas, steps = 4, 3
	want := make([][]any, steps)
	f := strategytest.New(t, 1, 1).Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) (all []*graph.Node) {
		state := graph.RNGStateFromSeedForGraph(rc.Graph(), 5)
		for range steps {
			var seed *graph.Node
			state, seed = graph.RNGStateSplit(state)
			for r := range replicas {
				own := graph.Add(seed, graph.Const(rc.Graph(), []uint64{uint64(r), 0, 0}))
				_, x := graph.RandomUniform(own, shapes.Make(dtypes.Float32, 16))
				all = append(all, x)
			}
		}
		return append(all, state)
	}, strategy.FunctionOptions{})
	out, err := f.Run(ctx)
	require.NoError(t, err)
	for i := range steps {
		for r := range replicas {
			want[i] = append(want[i], strategytest.Values(t, out[replicas*i+r], 1)[0])
		}
	}
	s, store := strategytest.New(t, replicas, 2), model.NewStore()
	require.NoError(t, store.SetRNGStateFromSeed(5))
	f = s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
		return []*graph.Node{rc.Scope().RandomUniform(rc.Graph(), shapes.Make(dtypes.Float32, 16))}
	}, strategy.FunctionOptions{Store: store})
	for i := range steps {
		drawn, err := f.Run(ctx)
		require.NoError(t, err)
		assert.Equal(t, want[i], strategytest.Values(t, drawn[0], replicas), "step %d", i)
	}
	state, ok := s.Variables(store).Lookup("/" + model.RNGStateVariableName)
	require.True(t, ok)
	assert.Equal(t, strategytest.Values(t, out[replicas*steps], 1)[0], strategytest.Values(t, state, 1)[0])
}

// A step without random numbers has no generator and no additional op. A step with random numbers
// has one additional draw.
func TestWhatRandomNumbersOfTheirOwnCost(t *testing.T) {
	s := strategytest.New(t, 4, 2)
	text := func(mirrored bool, draws int) string {
		store := model.NewStore()
		m, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			for range draws {
				in[0] = layers.DropoutStatic(rc.Scope(), in[0], 0.5)
			}
			return in
		}, strategy.FunctionOptions{Store: store, Training: true, MirroredRandomNumbers: mirrored}).Lowered(
			context.Background(), []float32{1, 2})
		require.NoError(t, err)
		assert.Equal(t, draws > 0, store.GetVariable("/"+model.RNGStateVariableName) != nil)
		return string(m.Text)
	}
	assert.Equal(t, text(true, 0), text(false, 0))
	const op = "stablehlo.rng_bit_generator"
	for draws := 1; draws < 3; draws++ {
		assert.Equal(t, draws, strings.Count(text(true, draws), op))
		assert.Equal(t, draws+1, strings.Count(text(false, draws), op))
	}
}

// A step may set the generator, before or after it draws. The new state is kept, and random numbers
// from it are the same on all replicas.
func TestStepsThatSetTheGenerator(t *testing.T) {
	ctx := context.Background()
	for name, draws := range map[string][2]bool{"nothing is drawn": {}, "before": {true, false}, "after": {false, true},
		"both": {true, true}} {
		s, store := strategytest.New(t, 2, 1), model.NewStore()
		require.NoError(t, store.SetRNGStateFromSeed(5))
		f := s.Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) (all []*graph.Node) {
			for i, draw := range draws {
				if i == 1 {
					store.GetVariable("/" + model.RNGStateVariableName).SetNodeValue(graph.Const(rc.Graph(), []uint64{1, 2, 3}))
				}
				if draw {
					all = append(all, rc.Scope().RandomUniform(rc.Graph(), shapes.Make(dtypes.Float32)))
				}
			}
			return all
		}, strategy.FunctionOptions{Store: store})
		out, err := f.Run(ctx)
		require.NoError(t, err, name)
		if draws[0] {
			values := strategytest.Values(t, out[0], 2)
			assert.NotEqual(t, values[0], values[1], name)
		}
		if draws[1] {
			values := strategytest.Values(t, out[len(out)-1], 2)
			assert.Equal(t, values[0], values[1], name)
		}
		state, ok := s.Variables(store).Lookup("/" + model.RNGStateVariableName)
		require.True(t, ok)
		set := strategytest.Values(t, state, 2)
		assert.Equal(t, set[0], set[1], name)
		assert.Equal(t, uint64(1), set[0].([]uint64)[0], "%s: the key that was set", name)
	}
}

// The random numbers of a replica cannot be written to a variable that all replicas share.
func TestRandomNumbersAreWrittenByAllReplicasAlike(t *testing.T) {
	for _, mirrored := range []bool{false, true} {
		store := model.NewStore()
		_, err := strategytest.New(t, 2, 1).Function(func(rc *strategy.ReplicaContext, _ []*graph.Node) []*graph.Node {
			v := rc.Scope().VariableWithValue("noise", float32(0))
			v.SetNodeValue(rc.Scope().RandomUniform(rc.Graph(), v.Shape()))
			return nil
		}, strategy.FunctionOptions{Store: store, MirroredRandomNumbers: mirrored}).Run(context.Background())
		if mirrored {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "MirroredRandomNumbers")
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}

// The TPU compiler accepts the replicas' generators, in a model with dropout.
func TestAOTStepsDrawRandomNumbersOfTheirOwn(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	strat := strategytest.Ahead(t, "v5e:2x4", strategy.Options{Replicas: 4, LogicalDevices: 2})
	store := model.NewStore()
	step := strategytest.OK(train.New(strat, store, optimizer.Adam().Done(), func(rc *strategy.ReplicaContext,
		in []*graph.Node) *graph.Node {
		h := logical.Split(layers.Dense(rc.Scope("hidden"), in[0], true, 256), 1, 2)
		h = layers.DropoutStatic(rc.Scope("dropout"), h, 0.5)
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), h, true, 1), in[1])))
	}, train.Options{}))
	x, y := strategytest.BatchShapes(64)
	compiled, err := step.Compiled(context.Background(), x, y)
	require.NoError(t, err)
	assert.Contains(t, string(compiled.Module.Text), "rng_bit_generator")
}
