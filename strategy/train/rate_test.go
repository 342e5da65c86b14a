package train_test

import (
	"errors"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/gomlx/gomlx/ml/train/optimizer/cosineschedule"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// slope is the loss w*x of a scalar w. Its gradient is the mean of x.
func slope(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	w := rc.Scope().VariableWithValue("w", float32(1)).NodeValue(rc.Graph())
	return graph.Mul(w, graph.ReduceAllMean(in[0]))
}

var ramp = schedule.WarmUp(2, schedule.Cosine(0.5, 0.125, 4))

// Each step uses the schedule's rate: single steps, loops, bound steps and steps after a
// checkpoint. Steps whose update is not applied do not count.
func TestStepsFollowTheSchedule(t *testing.T) {
	sys := plugintest.System(t, 2)
	s := strategytest.On(t, sys, strategy.Options{})
	sgd := func() optimizer.Interface { return optimizer.StochasticGradientDescent().WithDecay(false).Done() }
	store := model.NewStore()
	options := train.Options{LearningRate: ramp, NonFinite: train.Skip}
	step := strategytest.OK(train.New(s, store, sgd(), slope, options))
	w, taken := 1.0, int64(0)
	check := func(s *strategy.TPUStrategy, store *model.Store, step *train.Step) {
		t.Helper()
		v, ok := s.Variables(store).Lookup("/w")
		require.True(t, ok)
		assert.InDelta(t, w, float64(strategytest.Flat(t, v)[0]), 1e-6)
		assert.InDelta(t, ramp.At(taken-1), readings(t, step)["learning_rate"], 1e-7)
	}
	next := func(mean float64) {
		w -= ramp.At(taken) * mean
		taken++
	}
	batch := func(x float32) *tensors.Tensor { return tensors.FromFlatDataAndDimensions([]float32{x, x}, 2) }
	for i := range 3 {
		_, err := step.Run(t.Context(), batch(float32(i)))
		require.NoError(t, err)
		next(float64(i))
		check(s, store, step)
	}
	_, err := step.Run(t.Context(), batch(float32(math.Inf(1))))
	require.NoError(t, err)
	check(s, store, step)
	_, err = step.RunSteps(t.Context(), []any{batch(1)}, []any{batch(float32(math.NaN()))}, []any{batch(2)})
	require.NoError(t, err)
	next(1)
	next(2)
	check(s, store, step)

	m, err := checkpoint.OpenManager(t.Context(), t.TempDir(), checkpoint.ManagerOptions{})
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Save(t.Context(), 5, checkpoint.StrategyGroup(s, store), checkpoint.SaveOptions{}))
	require.NoError(t, m.Wait(t.Context()))
	last, err := m.Latest(t.Context())
	require.NoError(t, err)
	defer last.Close()
	other, resumed := strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 2}), model.NewStore()
	require.NoError(t, last.Restore(t.Context(), checkpoint.StrategyGroup(other, resumed), checkpoint.RestoreOptions{}))
	again := strategytest.OK(train.New(other, resumed, sgd(), slope, options))
	bound, err := again.Bind(t.Context(), batch(1))
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, bound.Launch(t.Context()))
		next(1)
		check(other, resumed, again)
	}
}

// With a constant schedule every optimizer makes the same update as with its own rate.
func TestEveryOptimizerTakesTheScheduledRate(t *testing.T) {
	sys := plugintest.System(t, 2)
	s := strategytest.On(t, sys, strategy.Options{Variables: strategytest.Share(logical.ShardParameters, 1)})
	for name, opt := range map[string]func(rate float64) optimizer.Interface{
		"adam": func(rate float64) optimizer.Interface { return optimizer.Adam().LearningRate(rate).Done() },
		"adamw": func(rate float64) optimizer.Interface {
			return optimizer.Adam().WeightDecay(0.1).LearningRate(rate).Done()
		},
		"adamax":  func(rate float64) optimizer.Interface { return optimizer.Adam().Adamax().LearningRate(rate).Done() },
		"rmsprop": func(rate float64) optimizer.Interface { return optimizer.RMSProp().LearningRate(rate).Done() },
		"float64": func(rate float64) optimizer.Interface {
			return optimizer.Adam().DType(dtypes.Float64).LearningRate(rate).Done()
		},
		"sgd": func(rate float64) optimizer.Interface {
			return optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(rate).Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			take := func(opt optimizer.Interface, o train.Options) map[string]*tensors.Tensor {
				store := strategytest.SeededStore()
				step := strategytest.OK(train.New(s, store, opt, linear, o))
				for i := range 2 {
					x, y := strategytest.Batch(i)
					_, err := step.Run(t.Context(), x, y)
					require.NoError(t, err)
				}
				return values(t, s, store)
			}
			want := take(opt(0.0625), train.Options{})
			requireAlike(t, want, take(opt(0.5), train.Options{LearningRate: schedule.Constant(0.0625)}), 1e-6)
		})
	}
}

// linear is a linear model of 8 features.
func linear(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	w := rc.Scope().VariableWithValue("w", [][]float32{{1}, {2}, {3}, {4}, {5}, {6}, {7}, {8}}).NodeValue(rc.Graph())
	return graph.ReduceAllMean(graph.Square(graph.Sub(graph.MatMul(in[0], w), in[1])))
}

// stubborn updates no variable and reads no rate.
type stubborn struct{ optimizer.Interface }

func (stubborn) UpdateGraphWithGradients(*model.Scope, []*graph.Node, dtypes.DType) {}

// picky updates only the variables that it knows.
type picky struct{ optimizer.Interface }

func (picky) UpdateGraphWithGradients(scope *model.Scope, _ []*graph.Node, _ dtypes.DType) {
	if scope.GetVariable("w") == nil {
		panic(errors.New("there is no w"))
	}
}

func TestSchedulesThatCannotBeFollowed(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	x, y := strategytest.Batch(0)
	cosine := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		cosineschedule.New(rc.Scope(), rc.Graph(), dtypes.Float32).LearningRate(0.1).PeriodSteps(4).Done()
		return linear(rc, in)
	}
	for name, c := range map[string]struct {
		opt  optimizer.Interface
		loss train.Loss
		rate schedule.Schedule
		want string
	}{
		"GoMLX's own": {optimizer.Adam().Done(), cosine, ramp,
			"the loss function sets the learning rate, and so does Options.LearningRate"},
		"SGD's own": {optimizer.StochasticGradientDescent().Done(), linear, ramp,
			"*optimizer.SGDConfig divides the learning rate by the root of the steps by itself"},
		"no rate": {stubborn{optimizer.Adam().Done()}, linear, ramp,
			"train_test.stubborn does not read its learning rate from the store (/optimizers/learning_rate)"},
		"no other model": {picky{optimizer.Adam().Done()}, linear, ramp,
			"train_test.picky cannot update a model of one number, by which the dtype of its learning rate is found"},
	} {
		t.Run(name, func(t *testing.T) {
			step := strategytest.OK(train.New(s, strategytest.SeededStore(), c.opt, c.loss, train.Options{LearningRate: c.rate}))
			_, err := step.Run(t.Context(), x, y)
			var trace *strategy.TraceError
			require.ErrorAs(t, err, &trace)
			assert.ErrorContains(t, err, c.want)
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		})
	}
	_, err := train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), linear,
		train.Options{LearningRate: schedule.Cosine(0.1, 0, 0)})
	assert.ErrorContains(t, err, "schedule: Cosine(0.1, 0, 0): 0 steps")
}
