package train_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// stages lists the ways to shard state over the replicas.
var stages = logical.StateShardings()

// odd is a model of 8 features whose variables have sizes that are divisible by 8, by 2 and by
// neither.
func odd(p int) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		h := graph.Tanh(layers.Dense(rc.Scope("wide"), in[0], true, 24))
		h = logical.Split(h, 1, p)
		h = graph.Tanh(layers.Dense(rc.Scope("odd"), h, true, 11))
		h = graph.Tanh(layers.Dense(rc.Scope("even"), h, true, 6))
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("out"), h, true, 1), in[1])))
	}
}

// oddRules shards the variables of odd.
func oddRules(p int) logical.Rules {
	return logical.Rules{logical.Match(`wide/.*weights`, logical.SplitInto(1, p)), logical.Match(`odd/.*weights`,
		logical.SplitInto(p, 1))}
}

// trainOdd runs n steps and returns the losses and the variables.
func trainOdd(t *testing.T, s *strategy.TPUStrategy, opt optimizer.Interface, n int,
	opts ...train.Options) (losses []float64, variables map[string]*tensors.Tensor) {
	t.Helper()
	store := strategytest.SeededStore()
	step := strategytest.OK(train.New(s, store, opt, odd(s.NumLogicalDevices()), append(opts, train.Options{})[0]))
	losses = strategytest.Losses(t, step, 0, n)
	variables = map[string]*tensors.Tensor{}
	for _, v := range s.Variables(store).All() {
		value, err := v.Value(t.Context())
		require.NoError(t, err)
		variables[v.Path()] = value
	}
	return losses, variables
}

func TestShardedStateTrainsAsWholeState(t *testing.T) {
	sys := plugintest.System(t, 8)
	for name, c := range map[string]struct {
		opt   func() optimizer.Interface
		steps int
	}{
		"adam": {func() optimizer.Interface { return optimizer.Adam().LearningRate(0.02).Done() }, 20},
		"sgd": {func() optimizer.Interface {
			return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.05).Done()
		}, 20},
	} {
		one := strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 1})
		wantLosses, want := trainOdd(t, one, c.opt(), c.steps)
		for _, mesh := range [][2]int{{8, 1}, {4, 2}, {2, 4}, {1, 8}} {
			for _, state := range stages {
				if mesh[0] == 1 && state != logical.ShardParameters || state == logical.ShardNothing ||
					name == "sgd" && (mesh[0] == 2) != (state == logical.ShardGradients) { // which has no state
					continue
				}
				t.Run(fmt.Sprintf("%s %dx%d %s", name, mesh[0], mesh[1], state), func(t *testing.T) {
					s := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1],
						Variables: append(oddRules(mesh[1]), strategytest.Share(state, 1)...)})
					losses, got := trainOdd(t, s, c.opt(), c.steps)
					assert.InDeltaSlice(t, wantLosses, losses, 1e-5)
					require.Len(t, got, len(want))
					for path, value := range want {
						require.Contains(t, got, path)
						assert.True(t, value.InDelta(got[path], 1e-4), "%s: %s, not %s", path, got[path], value)
					}
				})
			}
		}
	}
}

func TestADeviceHoldsItsPartOfTheState(t *testing.T) {
	sys := plugintest.System(t, 8)
	const weights, moment = "/wide/dense/weights", "/AdamOptimizer/wide/dense/weights_1st_moment"
	for _, c := range []struct {
		state                       logical.StateSharding
		mesh                        [2]int
		smallest                    int
		weights, moment, odd, count int
	}{
		// Variables: float32 [8, 24], [24, 11] and a scalar.
		{logical.ShardNothing, [2]int{8, 1}, 1, 768, 768, 1056, 4},
		{logical.ShardOptimizer, [2]int{8, 1}, 1, 768, 96, 1056, 4},
		{logical.ShardGradients, [2]int{4, 2}, 1, 384, 96, 528, 4},
		{logical.ShardParameters, [2]int{8, 1}, 1, 96, 96, 132, 4},
		{logical.ShardParameters, [2]int{4, 2}, 1, 96, 96, 144, 4}, // 11 columns in 4 parts of 3
		{logical.ShardParameters, [2]int{8, 1}, 200, 768, 768, 132, 4},
		{logical.ShardParameters, [2]int{1, 8}, 1, 96, 96, 132, 4}, // over the logical devices
	} {
		t.Run(fmt.Sprintf("%s %v from %d", c.state, c.mesh, c.smallest), func(t *testing.T) {
			s := strategytest.On(t, sys, strategy.Options{Replicas: c.mesh[0], LogicalDevices: c.mesh[1],
				Variables: append(oddRules(c.mesh[1]), strategytest.Share(c.state, c.smallest)...)})
			store := strategytest.SeededStore()
			step := strategytest.OK(train.New(s, store, optimizer.Adam().Done(), odd(c.mesh[1]), train.Options{}))
			x, y := strategytest.Batch(0)
			lowered, err := step.Lowered(t.Context(), x, y)
			require.NoError(t, err)
			bytes := func(path string) int {
				for _, a := range lowered.Arguments {
					if a.Name == path {
						n := 4
						for _, d := range a.ShardDims {
							n *= d
						}
						v, ok := s.Variables(store).Lookup(path)
						require.True(t, ok)
						assert.Equal(t, n, v.BytesPerDevice())
						return n
					}
				}
				require.Fail(t, "no argument "+path)
				return 0
			}
			assert.Equal(t, c.weights, bytes(weights))
			assert.Equal(t, c.moment, bytes(moment))
			assert.Equal(t, c.odd, bytes("/odd/dense/weights"))
			assert.Equal(t, c.count, bytes("/AdamOptimizer/step"))
		})
	}
}
