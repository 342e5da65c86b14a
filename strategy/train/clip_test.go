package train_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// readings returns a step's metrics by name.
func readings(t testing.TB, step *train.Step) map[string]float64 {
	t.Helper()
	all, err := step.Metrics(t.Context())
	require.NoError(t, err)
	byName := map[string]float64{}
	for i, r := range all {
		assert.Equal(t, step.MetricNames()[i], r.Name)
		byName[r.Name] = r.Value
	}
	return byName
}

// normOf computes, on the host, the global norm of some variables of a store.
func normOf(t testing.TB, s *strategy.TPUStrategy, store *model.Store, trained bool) float64 {
	t.Helper()
	sum := 0.0
	for _, v := range s.Variables(store).All() {
		if v.Trainable() == trained {
			value, err := v.Value(t.Context())
			require.NoError(t, err)
			for _, x := range strategytest.Numbers(t, value) {
				sum += x * x
			}
		}
	}
	return math.Sqrt(sum)
}

// statesOf lists the shardings of state that are tested on each mesh.
var statesOf = map[[2]int][]logical.StateSharding{
	{1, 1}: {logical.ShardNothing},
	{8, 1}: {logical.ShardOptimizer, logical.ShardParameters},
	{4, 2}: {logical.ShardNothing, logical.ShardGradients},
	{2, 4}: {logical.ShardParameters},
}

// Clipping and norms over replicas, logical devices and shards equal those of one device, for
// variables with divisible and other dimensions.
func TestTheGlobalNormIsThatOfOneDevice(t *testing.T) {
	sys := plugintest.System(t, 8)
	const steps = 3
	options := train.Options{ClipNorm: 0.05, Norms: true, UpdateNorm: true}
	for name, opt := range optimizersOf {
		var wantLosses []float64
		var want []map[string]float64
		var variables map[string]*tensors.Tensor
		for _, mesh := range [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}} {
			for _, state := range statesOf[mesh] {
				loss, opts := linear, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1],
					Variables: strategytest.Share(state, 1)}
				if name == "adamax" {
					loss, opts = odd(mesh[1]), sharded(mesh[0], mesh[1], state)
				} else if mesh[0] > 1 && mesh[0] != 2 {
					continue
				}
				t.Run(fmt.Sprintf("%s %dx%d %s", name, mesh[0], mesh[1], state), func(t *testing.T) {
					s := strategytest.On(t, sys, opts)
					store := strategytest.SeededStore()
					step := strategytest.OK(train.New(s, store, opt(), loss, options))
					var losses []float64
					var norms []map[string]float64
					for i := range steps {
						losses = append(losses, strategytest.Losses(t, step, i, i+1)...)
						norms = append(norms, readings(t, step))
					}
					got := values(t, s, store)
					assert.InEpsilon(t, normOf(t, s, store, true), norms[steps-1]["parameter_norm"], 1e-5, "as the step leaves them")
					if want == nil {
						require.Greater(t, norms[0]["gradient_norm"], 0.05, "nothing was clipped")
						wantLosses, want, variables = losses, norms, got
						return
					}
					assert.InDeltaSlice(t, wantLosses, losses, 1e-5)
					for i := range norms {
						for key, value := range want[i] {
							if value == 0 { // AdamW made no update
								assert.InDelta(t, value, norms[i][key], 1e-9, key)
								continue
							}
							assert.InEpsilon(t, value, norms[i][key], 1e-4, "%s of step %d", key, i)
						}
					}
					requireAlike(t, variables, got, 1e-4)
				})
			}
		}
	}
}

// Gradients below the limit are unchanged bit for bit. With SGD the update is the learning rate
// times the clipped gradient.
func TestGradientsAreScaledToTheNorm(t *testing.T) {
	strategytest.OnMeshes(t, [][2]int{{1, 1}, {4, 1}}, func(t *testing.T, s *strategy.TPUStrategy) {
		losses := func(o train.Options) ([]float64, map[string]float64) {
			store := strategytest.SeededStore()
			opt := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.5).Done()
			step := strategytest.OK(train.New(s, store, opt, linear, o))
			return strategytest.Losses(t, step, 0, 2), readings(t, step)
		}
		plain, norms := losses(train.Options{Norms: true, UpdateNorm: true})
		assert.InEpsilon(t, norms["gradient_norm"]*0.5, norms["update_norm"], 1e-4)
		high, _ := losses(train.Options{ClipNorm: 1e6, Norms: true})
		assert.Equal(t, plain, high)
		_, clipped := losses(train.Options{ClipNorm: 0.01, Norms: true, UpdateNorm: true})
		assert.Greater(t, clipped["gradient_norm"], 0.01, "before clipping")
		assert.InEpsilon(t, 0.01*0.5, clipped["update_norm"], 1e-3)
	})
}

// Tensors and layers that are assigned to one logical device count once.
func TestTheNormOfVariablesOnADevice(t *testing.T) {
	sys := plugintest.System(t, 8)
	var want map[string]float64
	for _, mesh := range [][2]int{{1, 1}, {4, 2}, {2, 4}} {
		opts := strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1],
			Variables: append(strategytest.AnnotatedRules(mesh[1]),
				logical.Match(`expert/.*weights`, logical.AssignTo(mesh[1]-1)))}
		s := strategytest.On(t, sys, opts)
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
			strategytest.Annotated(mesh[1]),
			train.Options{ClipNorm: 0.5, Norms: true, UpdateNorm: true}))
		strategytest.Losses(t, step, 0, 2)
		got := readings(t, step)
		if want == nil {
			want = got
			require.Greater(t, got["gradient_norm"], 0.5)
		}
		for name, value := range want {
			assert.InEpsilon(t, value, got[name], 1e-4, "%s on %v", name, mesh)
		}
	}
}

// The norm needs no all-reduce if each replica has the whole gradients, and one all-reduce of a
// scalar if gradients are sharded, also with padding and in loops.
func TestTheNormCostsOneSmallAllReduceAtMost(t *testing.T) {
	sys := plugintest.System(t, 8)
	layered := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := loop.Layers(rc.Scope("layers"), 3, in[0], func(scope *model.Scope, x *graph.Node) *graph.Node {
			w := scope.WithInitializer(initializer.GlorotUniformFn(scope)).VariableWithShape("w", x.Shape().Clone()) // [4, 8]
			return graph.Add(x, graph.Tanh(graph.Mul(x, w.NodeValue(x.Graph()))))
		}, loop.Options{})
		return graph.ReduceAllMean(graph.Square(graph.Sub(x, graph.BroadcastToDims(in[1], x.Shape().Dimensions...))))
	}
	for _, state := range stages {
		for name, loss := range map[string]train.Loss{"odd": odd(1), "layers": layered} {
			t.Run(fmt.Sprintf("%s %s", state, name), func(t *testing.T) {
				s := strategytest.On(t, sys, strategy.Options{Replicas: 8, Variables: strategytest.Share(state, 1)})
				count := func(o train.Options) int {
					step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), loss, o))
					x, y := strategytest.BatchShapes(32)
					m, err := step.Lowered(t.Context(), x, y)
					require.NoError(t, err)
					return bytes.Count(m.Text, []byte("stablehlo.all_reduce"))
				}
				plain, parts := count(train.Options{}), 0
				if state != logical.ShardNothing {
					parts = 1
				}
				assert.Equal(t, plain+parts, count(train.Options{ClipNorm: 1}))
				assert.Equal(t, plain+2*parts, count(train.Options{ClipNorm: 1, Norms: true, UpdateNorm: true}),
					"the norms of the end share one")
			})
		}
	}
}

// The guard and the loss scale detect a norm that is not finite although the gradients are.
func TestANormThatIsNotFinite(t *testing.T) {
	sys := plugintest.System(t, 2)
	s := strategytest.On(t, sys, strategy.Options{})
	large := tensors.FromFlatDataAndDimensions([]float32{1, 3e20, 1, 3e20}, 2, 2) // squares of the mean overflow
	small := tensors.FromFlatDataAndDimensions([]float32{3, 4, 3, 4}, 2, 2)
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		w := rc.Scope().VariableWithValue("w", []float32{1, 1}).NodeValue(rc.Graph())
		return graph.ReduceAllSum(graph.Mul(w, graph.ReduceMean(in[0], 0)))
	}
	sgd := func() optimizer.Interface {
		return optimizer.StochasticGradientDescent().WithLearningRate(1).WithDecay(false).Done()
	}
	weights := func(t *testing.T, store *model.Store) []float32 {
		v, _ := s.Variables(store).Lookup("/w")
		return strategytest.Flat(t, v)
	}
	t.Run("taken, it is NaN everywhere", func(t *testing.T) {
		store := model.NewStore()
		step := strategytest.OK(train.New(s, store, sgd(), loss, train.Options{ClipNorm: 1}))
		_, err := step.Run(t.Context(), large)
		require.NoError(t, err)
		for _, w := range weights(t, store) {
			assert.True(t, math.IsNaN(float64(w)))
		}
	})
	t.Run("skipped", func(t *testing.T) {
		store := model.NewStore()
		step := strategytest.OK(train.New(s, store, sgd(), loss, train.Options{ClipNorm: 1, NonFinite: train.Skip,
			Norms: true, Metrics: []train.Metric{train.MeanLoss()}}))
		for _, batch := range []*tensors.Tensor{small, large} {
			_, err := step.Run(t.Context(), batch)
			require.NoError(t, err)
		}
		n, err := step.NonFinite(t.Context())
		require.NoError(t, err)
		assert.Equal(t, train.NonFiniteSteps{Steps: 2, Skipped: 1, Last: 2, What: "the norm of the gradients"}, n)
		assert.InDeltaSlice(t, []float32{1 - 0.6, 1 - 0.8}, weights(t, store), 1e-6)
		got := readings(t, step)
		assert.InDelta(t, 5, got["gradient_norm"], 1e-6, "of the step that was taken")
		assert.InDelta(t, 7, got["loss"], 1e-6)
	})
	t.Run("stopped", func(t *testing.T) {
		step := strategytest.OK(train.New(s, model.NewStore(), sgd(), loss, train.Options{ClipNorm: 1,
			NonFinite: train.Stop}))
		_, err := step.Run(t.Context(), large)
		var stopped *train.NonFiniteError
		require.ErrorAs(t, err, &stopped)
		assert.Equal(t, "the norm of the gradients", stopped.What)
	})
	t.Run("with a dynamic scale", func(t *testing.T) {
		store := model.NewStore()
		policy := precision.MixedFloat16
		policy.LossScale.Initial = 4
		step := strategytest.OK(train.New(s, store, sgd(), product, train.Options{ClipNorm: 0.125, Precision: policy,
			Norms: true}))
		_, err := step.Run(t.Context(), rows(2, 1)) // a mean of 0.75, unscaled
		require.NoError(t, err)
		assert.InDelta(t, 0.75, readings(t, step)["gradient_norm"], 1e-6)
		v, _ := s.Variables(store).Lookup("/w")
		assert.InDeltaSlice(t, []float32{1 - 0.125}, strategytest.Flat(t, v), 1e-6)
		_, err = step.Run(t.Context(), rows(2, 60000)) // times 4 it overflows
		require.NoError(t, err)
		scale, err := step.LossScale(t.Context())
		require.NoError(t, err)
		assert.Equal(t, int64(1), scale.Skipped)
		assert.InDelta(t, 0.75, readings(t, step)["gradient_norm"], 1e-6)
	})
}

// The norm uses the absolute value of complex numbers, and squares half-precision numbers in
// float32.
func TestTheNormOfOtherDTypes(t *testing.T) {
	strategytest.OnMeshes(t, [][2]int{{1, 1}, {4, 1}}, func(t *testing.T, s *strategy.TPUStrategy) {
		store := model.NewStore()
		step := strategytest.OK(train.New(s, store,
			optimizer.StochasticGradientDescent().WithLearningRate(1).WithDecay(false).Done(), func(rc *strategy.ReplicaContext,
				in []*graph.Node) *graph.Node {
				z := rc.Scope().VariableWithValue("z", []complex64{0, 0}).NodeValue(rc.Graph())
				half := rc.Scope().VariableWithValue("half", []float16.Float16{0, 0}).NodeValue(rc.Graph())
				double := rc.Scope().VariableWithValue("double", []float64{0}).NodeValue(rc.Graph())
				x := graph.ReduceAllMean(in[0])
				sum := func(x *graph.Node) *graph.Node { return graph.ConvertDType(graph.ReduceAllSum(x), dtypes.Float32) }
				loss := graph.Add(graph.MulScalar(sum(graph.Real(z)), 300), graph.MulScalar(sum(graph.Imag(z)), 400))
				return graph.Mul(x, graph.Add(loss, graph.Add(graph.MulScalar(sum(half), 30000), sum(double))))
			}, train.Options{ClipNorm: 1, Norms: true, UpdateNorm: true}))
		_, err := step.Run(t.Context(), []float32{1, 1, 1, 1})
		require.NoError(t, err)
		got := readings(t, step)
		assert.InEpsilon(t, math.Sqrt(2*500*500+2*30000.*30000+1), got["gradient_norm"], 1e-6)
		assert.InEpsilon(t, 1, got["update_norm"], 1e-3)
	})
}

func TestClipNormsThatAreNone(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	for _, norm := range []float64{-1, math.NaN(), math.Inf(1), 1e300} {
		_, err := train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), odd(1), train.Options{ClipNorm: norm})
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		assert.ErrorContains(t, err, "Options.ClipNorm is")
	}
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), odd(1), train.Options{}))
	_, err := step.Metrics(t.Context())
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorIs(t, step.ResetMetrics(t.Context()), errors.ErrUnsupported)
	assert.Nil(t, step.MetricNames())
	assert.Nil(t, step.MetricState())
}
