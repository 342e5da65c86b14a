package train_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	gomlxtrain "github.com/gomlx/gomlx/ml/train"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/train/optimizer/cosineschedule"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// The reference is GoMLX's own trainer on its own backend. A training step has the same variables
// with the same values, for all optimizers, parameters, regularizers and schedules of layers.
func TestTrainStepTakesTheStepsOfGoMLXsTrainer(t *testing.T) {
	const steps = 5
	sys := plugintest.System(t, 4)
	ctx := context.Background()
	backend, err := gobackend.New("")
	require.NoError(t, err)
	defer backend.Finalize()

	random := func(seed uint64, rows, columns int) *tensors.Tensor {
		rng := rand.New(rand.NewPCG(seed, 1))
		data := make([]float32, rows*columns)
		for i := range data {
			data[i] = float32(rng.NormFloat64())
		}
		return tensors.FromFlatDataAndDimensions(data, rows, columns)
	}
	dense := func(scope *model.Scope, x *graph.Node) *graph.Node {
		return layers.Dense(scope.In("output"), graph.Tanh(layers.Dense(scope.In("hidden"), x, true, 8)), true, 1)
	}
	adam := func(*model.Store) optimizer.Interface { return optimizer.Adam().LearningRate(0.01).Done() }
	for name, c := range map[string]struct {
		params map[string]any
		model  func(scope *model.Scope, x *graph.Node) *graph.Node
		opt    func(store *model.Store) optimizer.Interface
	}{
		"adam": {nil, dense, adam},
		"sgd with its decay": {nil, dense, func(*model.Store) optimizer.Interface {
			return optimizer.StochasticGradientDescent().Done()
		}},
		"weight decay": {nil, dense, func(*model.Store) optimizer.Interface {
			return optimizer.Adam().WeightDecay(0.1).LearningRate(0.01).Done()
		}},
		"rmsprop": {nil, dense,
			func(*model.Store) optimizer.Interface { return optimizer.RMSProp().LearningRate(0.01).Done() }},
		"steps held back": {nil, dense, func(*model.Store) optimizer.Interface {
			return optimizer.Adam().WithBackoffSteps(3).LearningRate(0.01).Done()
		}},
		"clipped, all from parameters": {map[string]any{
			optimizer.ParamOptimizer: "adamw", optimizer.ParamLearningRate: 0.02,
			optimizer.ParamClipStepByValue: 0.005, optimizer.ParamClipNaN: true,
		}, dense, func(store *model.Store) optimizer.Interface { return optimizer.FromStore(store) }},
		"L2": {map[string]any{regularizer.ParamL2: 0.1}, dense, adam},
		"L1": {map[string]any{regularizer.ParamL1: 0.1}, dense, adam},
		"a schedule": {map[string]any{optimizer.ParamLearningRate: 0.1}, func(scope *model.Scope, x *graph.Node) *graph.Node {
			cosineschedule.New(scope, x.Graph(), x.DType()).PeriodInSteps(4).WarmUpSteps(2).Done()
			return dense(scope, x)
		}, func(store *model.Store) optimizer.Interface { return optimizer.FromStore(store) }},
	} {
		t.Run(name, func(t *testing.T) {
			newStore := func() *model.Store {
				store := model.NewStore()
				store.SetParam(model.ParamInitialSeed, int64(5))
				for key, value := range c.params {
					store.SetParam(key, value)
				}
				return store
			}
			reference := newStore()
			trainer := gomlxtrain.NewTrainer(backend, reference, func(scope *model.Scope, _ any,
				inputs []*graph.Node) []*graph.Node {
				return []*graph.Node{c.model(scope, inputs[0])}
			}, loss.MeanSquaredError, c.opt(reference), nil, nil)
			var losses []float64
			for i := range uint64(steps) {
				metrics, err := trainer.TrainStep(gomlxtrain.Batch{Inputs: []*tensors.Tensor{random(i, 8, 3)},
					Labels: []*tensors.Tensor{random(100+i, 8, 1)}})
				require.NoError(t, err)
				losses = append(losses, float64(tensors.ToScalar[float32](metrics[0])))
			}
			for _, mesh := range [][2]int{{1, 1}, {4, 1}, {2, 2}} {
				t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
					strat := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
					store := newStore()
					step := strategytest.OK(train.New(strat, store, c.opt(store), func(rc *strategy.ReplicaContext,
						in []*graph.Node) *graph.Node {
						return graph.ReduceAllMean(loss.MeanSquaredError([]*graph.Node{in[1]}, []*graph.Node{c.model(rc.Scope(), in[0])}))
					}, train.Options{}))
					for i := range uint64(steps) {
						l, err := step.Run(ctx, random(i, 8, 3), random(100+i, 8, 1))
						require.NoError(t, err)
						value, err := l.Float64(ctx)
						require.NoError(t, err)
						assert.InDelta(t, losses[i], value, 1e-4*max(1, losses[i]), "loss of step %d", i)
					}
					variables := strat.Variables(store).All()
					assert.GreaterOrEqual(t, len(variables), 5)
					for _, v := range variables {
						want := reference.GetVariable(v.Path())
						if !assert.NotNil(t, want, v.Path()) {
							continue
						}
						wantValue, err := want.Value()
						require.NoError(t, err)
						value, err := v.Value(ctx)
						require.NoError(t, err)
						assert.True(t, wantValue.InDelta(value, 1e-4), "%s: want %s, got %s", v.Path(), wantValue, value)
					}
				})
			}
		})
	}
}
