package train_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

const (
	maskLayers = 3  // layers of a loop, followed by a block
	maskWidth  = 64 // width of a mask
)

// masking sums dropout masks times weights, in the layers of a loop and in a block. Both recompute
// the masks in the backward pass. seen receives the masks in order.
func masking(seen *strategy.Variable) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		add := func(scope *model.Scope, x *graph.Node) *graph.Node {
			mask := layers.DropoutStatic(scope, graph.OnesLike(x), 0.5)
			rc.Assign(seen, graph.Concatenate([]*graph.Node{graph.Slice(rc.Read(seen), graph.AxisRange(1)),
				graph.ExpandAxes(mask, 0)}, 0))
			w := scope.VariableWithValue("w", make([]float32, maskWidth)).NodeValue(x.Graph())
			return graph.Add(x, graph.Mul(mask, w))
		}
		x := graph.BroadcastPrefix(graph.ReduceAllMean(in[0]), maskWidth)
		x = loop.Layers(rc.Scope("layers"), maskLayers, x, add, loop.Options{Keep: remat.Nothing()})
		x = remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node { return add(rc.Scope("block"), x) })
		return graph.ReduceAllMean(x)
	}
}

// Dropout masks differ between replicas, layers, microbatches and steps. The backward pass has the
// masks of the forward pass. With MirroredRandomNumbers all replicas have the same masks.
func TestDropoutMasksOfReplicas(t *testing.T) {
	const microbatches, steps = 2, 2
	const masks = microbatches * (maskLayers + 1)
	strategytest.OnMeshes(t, [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}}, func(t *testing.T, s *strategy.TPUStrategy) {
		for _, mirrored := range []bool{false, true} {
			replicas := s.NumReplicasInSync()
			seen, err := s.NewVariable(t.Context(), tensors.FromFlatDataAndDimensions(make([]float32, masks*maskWidth), masks,
				maskWidth), strategy.VariableOptions{
				Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
			require.NoError(t, err)
			store := strategytest.SeededStore()
			step := strategytest.OK(train.New(s, store,
				optimizer.StochasticGradientDescent().WithLearningRate(maskWidth).WithDecay(false).Done(), masking(seen),
				train.Options{Accumulate: microbatches, MirroredRandomNumbers: mirrored}))
			want := make([]float64, (maskLayers+1)*maskWidth)
			different := map[string]bool{}
			for range steps {
				_, err := step.Run(t.Context(), make([]float32, microbatches*replicas))
				require.NoError(t, err)
				for r := range replicas {
					for p := range s.NumLogicalDevices() {
						value, err := seen.LocalShard(t.Context(), r, p)
						require.NoError(t, err)
						all := strategytest.Numbers(t, value)
						for i := range masks {
							different[fmt.Sprint(all[i*maskWidth:][:maskWidth])] = true
						}
						if p > 0 {
							continue
						}
						for i, x := range all {
							want[i%len(want)] -= x / float64(replicas*microbatches)
						}
					}
				}
			}
			if mirrored {
				assert.Len(t, different, steps*masks)
			} else {
				assert.Len(t, different, steps*masks*replicas)
			}
			var got []float64
			for _, path := range []string{"/layers/w", "/block/w"} {
				v, ok := s.Variables(store).Lookup(path)
				require.True(t, ok)
				value, err := v.Value(t.Context())
				require.NoError(t, err)
				got = append(got, strategytest.Numbers(t, value)...)
			}
			assert.InDeltaSlice(t, want, got, 1e-5, "the gradients are the masks")
		}
	})
}

// A step whose update is not applied does not change the random number state.
func TestASkippedStepDrawsTheSameNumbersAgain(t *testing.T) {
	s, store := strategytest.New(t, 4, 2), strategytest.SeededStore()
	step := strategytest.OK(train.New(s, store, optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			h := layers.DropoutStatic(rc.Scope("drop"), layers.Dense(rc.Scope("dense"), in[0], true, 8), 0.5)
			return graph.ReduceAllMean(graph.Mul(h, in[0]))
		}, train.Options{NonFinite: train.Skip}))
	var states []any
	for _, x := range []float32{1, float32(math.Inf(1)), 2} {
		batch := make([][]float32, 8)
		for i := range batch {
			batch[i] = []float32{x}
		}
		_, err := step.Run(t.Context(), batch)
		require.NoError(t, err)
		state, ok := s.Variables(store).Lookup("/" + model.RNGStateVariableName)
		require.True(t, ok)
		values := strategytest.Values(t, state, 4)
		assert.Equal(t, []any{values[0], values[0], values[0], values[0]}, values)
		states = append(states, values[0])
	}
	assert.Equal(t, states[0], states[1])
	assert.NotEqual(t, states[1], states[2])
}
