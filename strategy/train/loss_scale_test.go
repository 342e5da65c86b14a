package train_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/model/initializer"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// product is the loss w*x of a scalar w, in float16. Its gradient overflows if the scale times x is
// 65,520 or more.
func product(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	w := rc.Scope().WithInitializer(initializer.One).VariableWithShape("w", shapes.Make(in[0].DType(), 1,
		1)).NodeValue(rc.Graph())
	return precision.Output(graph.ReduceAllMean(graph.Mul(w, in[0])))
}

func isScaled(scale precision.LossScale) precision.Policy {
	p := precision.MixedFloat16
	p.LossScale = scale
	return p
}

func productStep(s *strategy.TPUStrategy, store *model.Store, scale precision.LossScale,
	mode train.NonFinite) *train.Step {
	opt := optimizer.StochasticGradientDescent().WithLearningRate(0.125).WithDecay(false).Done()
	return strategytest.OK(train.New(s, store, opt, product, train.Options{Precision: isScaled(scale), NonFinite: mode}))
}

// rows returns a batch with one row for each replica: x on the last replica, and 0.5 on the others.
func rows(replicas int, x float32) *tensors.Tensor {
	all := make([]float32, replicas)
	for r := range all {
		all[r] = 0.5
	}
	all[replicas-1] = x
	return tensors.FromFlatDataAndDimensions(all, replicas, 1)
}

// expected has the state of TensorFlow's LossScaleOptimizer and the value of w after the batches.
type expected struct {
	train.LossScaling
	w float64
}

func (e *expected) step(scale precision.LossScale, replicas int, x float64) {
	if x*e.Scale >= 65520 {
		e.Scale, e.Good = max(e.Scale/scale.Factor, 1), 0
		e.Skipped++
		return
	}
	e.w -= 0.125 * (x + 0.5*float64(replicas-1)) / float64(replicas)
	if e.Good++; e.Good == int64(scale.Interval) {
		e.Scale, e.Good = e.Scale*scale.Factor, 0
		e.Grown++
	}
}

var overflowing = []float32{4, 4, 4, 1, 1, 1, 1, 4, 4, 1, 1, 1, 1, 1, 1, 0.5}

func TestTheLossScaleFindsItsSize(t *testing.T) {
	ctx := context.Background()
	scale := precision.LossScale{Initial: 1 << 15, Interval: 3, Factor: 2}
	for i, mesh := range [][2]int{{1, 1}, {4, 1}, {2, 2}} {
		for _, mode := range [][]train.NonFinite{{train.Skip}, {train.Apply}, {train.Apply, train.Stop}}[i] {
			t.Run(fmt.Sprintf("%dx%d/%s", mesh[0], mesh[1], mode), func(t *testing.T) {
				s := strategytest.New(t, mesh[0], mesh[1])
				store := model.NewStore()
				step := productStep(s, store, scale, mode)
				got, err := step.LossScale(ctx)
				require.NoError(t, err)
				require.Equal(t, train.LossScaling{Scale: 1 << 15}, got)
				want := expected{LossScaling: got, w: 1}
				for i, x := range overflowing {
					_, err := step.Run(ctx, rows(mesh[0], x))
					require.NoError(t, err)
					want.step(scale, mesh[0], float64(x))
					got, err := step.LossScale(ctx)
					require.NoError(t, err)
					require.Equal(t, want.LossScaling, got, "after step %d", i)
				}
				require.NotZero(t, want.Grown*want.Skipped)
				for _, v := range s.Variables(store).All() {
					all := strategytest.Values(t, v, mesh[0])
					for r := range all {
						require.Equal(t, all[0], all[r], "%s on replica %d", v.Path(), r)
					}
					if v.Path() == "/w" {
						require.InDelta(t, want.w, all[0].([][]float32)[0][0], 1e-6)
					}
				}
				if mode == train.Apply {
					return
				}
				counts, err := step.NonFinite(ctx)
				require.NoError(t, err)
				require.Equal(t, train.NonFiniteSteps{Steps: int64(len(overflowing))}, counts, "the scale's steps are no alarm")
			})
		}
	}
}

func TestTheGuardSeesWhatTheScaleIsNotToBlameFor(t *testing.T) {
	ctx := context.Background()
	scale := precision.LossScale{Initial: 4, Interval: 2, Factor: 2}
	inf := float32(math.Inf(1))
	s := strategytest.New(t, 2, 1)
	step := productStep(s, model.NewStore(), scale, train.Skip)
	for _, c := range []struct {
		x      float32
		scale  train.LossScaling
		counts train.NonFiniteSteps
	}{
		{inf, train.LossScaling{Scale: 2}, train.NonFiniteSteps{Steps: 1, Skipped: 1, Last: 1, What: "the loss"}},
		{60000, train.LossScaling{Scale: 1, Skipped: 1}, train.NonFiniteSteps{Steps: 2, Skipped: 1, Last: 1,
			What: "the loss"}},
		{60000, train.LossScaling{Scale: 1, Good: 1, Skipped: 1}, train.NonFiniteSteps{Steps: 3, Skipped: 1, Last: 1,
			What: "the loss"}},
		{1, train.LossScaling{Scale: 2, Grown: 1, Skipped: 1}, train.NonFiniteSteps{Steps: 4, Skipped: 1, Last: 1,
			What: "the loss"}},
	} {
		_, err := step.Run(ctx, rows(2, c.x))
		require.NoError(t, err)
		got, err := step.LossScale(ctx)
		require.NoError(t, err)
		require.Equal(t, c.scale, got, c.x)
		counts, err := step.NonFinite(ctx)
		require.NoError(t, err)
		require.Equal(t, c.counts, counts, c.x)
	}
	stopping := productStep(s, model.NewStore(), precision.LossScale{Initial: 4, Interval: 2}, train.Stop)
	_, err := stopping.Run(ctx, rows(2, 60000)) // 240,000 overflows because of the scale
	require.NoError(t, err)
	_, err = stopping.Run(ctx, rows(2, inf))
	var stopped *train.NonFiniteError
	require.ErrorAs(t, err, &stopped)
	require.Equal(t, "the loss", stopped.What)
	_, err = stopping.Run(ctx, rows(2, 1))
	require.ErrorAs(t, err, &stopped)
	got, err := stopping.LossScale(ctx)
	require.NoError(t, err)
	require.Equal(t, train.LossScaling{Scale: 1, Skipped: 1}, got, "no step after a stop changes the scale")
}

func TestTheLossScaleInLoopsAndCheckpoints(t *testing.T) {
	ctx := context.Background()
	scale := precision.LossScale{Initial: 1 << 15, Interval: 3, Factor: 2}
	want := expected{LossScaling: train.LossScaling{Scale: 1 << 15}, w: 1}
	s := strategytest.New(t, 2, 1)
	store := model.NewStore()
	step := productStep(s, store, scale, train.Apply)
	var batches [][]any
	for _, x := range overflowing[:8] {
		want.step(scale, 2, float64(x))
		batches = append(batches, []any{rows(2, x)})
	}
	_, err := step.RunSteps(ctx, batches...)
	require.NoError(t, err)
	got, err := step.LossScale(ctx)
	require.NoError(t, err)
	require.Equal(t, want.LossScaling, got)

	m, err := checkpoint.OpenManager(ctx, t.TempDir(), checkpoint.ManagerOptions{})
	require.NoError(t, err)
	defer m.Close()
	require.NoError(t, m.Save(ctx, 8, checkpoint.StrategyGroup(s, store), checkpoint.SaveOptions{}))
	require.NoError(t, m.Wait(ctx))
	saved, err := m.Latest(ctx)
	require.NoError(t, err)
	defer saved.Close()
	for _, v := range saved.Variables() {
		require.False(t, v.Shape.DType.IsHalfPrecision(), "%s is %s", v.Path, v.Shape)
	}
	other := strategytest.New(t, 1, 2)
	restored := model.NewStore()
	again := productStep(other, restored, scale, train.Apply)
	require.NoError(t, saved.Restore(ctx, checkpoint.StrategyGroup(other, restored), checkpoint.RestoreOptions{}))
	for _, x := range overflowing[8:] {
		_, err := again.Run(ctx, rows(1, x))
		require.NoError(t, err)
		want.step(scale, 1, float64(x))
	}
	got, err = again.LossScale(ctx)
	require.NoError(t, err)
	require.Equal(t, want.LossScaling, got)
	w, _ := other.Variables(restored).Lookup("/w")
	value, err := w.Value(ctx)
	require.NoError(t, err)
	require.InDelta(t, want.w, value.Value().([][]float32)[0][0], 1e-6)
}

// A stored scale that is not finite or below 1, as in a store that was filled by hand, is replaced
// by the initial scale.
func TestALossScaleThatIsNoNumberIsTheFirst(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	for _, held := range []float32{0, -3, nan, float32(math.Inf(1))} {
		store := model.NewStore()
		store.VariableWithValue("/loss_scale/train_step/scale", held)
		step := productStep(s, store, precision.LossScale{Initial: 8, Interval: 2}, train.Skip)
		_, err := step.Run(ctx, rows(2, 1))
		require.NoError(t, err)
		got, err := step.LossScale(ctx)
		require.NoError(t, err)
		require.Equal(t, train.LossScaling{Scale: 8, Good: 1}, got, held)
	}
}

// A fixed scale is exact if it is a power of two, and preserves gradients that are too small for
// float16.
func TestAFixedLossScale(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	trained := func(scale precision.LossScale) float64 {
		store := model.NewStore()
		opt := optimizer.StochasticGradientDescent().WithLearningRate(1e6).WithDecay(false).Done()
		step := strategytest.OK(train.New(s, store, opt, func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.MulScalar(product(rc, in), 1e-8)
		}, train.Options{Precision: isScaled(scale)}))
		_, err := step.Run(ctx, rows(2, 1.5))
		require.NoError(t, err)
		_, err = step.LossScale(ctx)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		w, _ := s.Variables(store).Lookup("/w")
		value, err := w.Value(ctx)
		require.NoError(t, err)
		return float64(value.Value().([][]float32)[0][0])
	}
	require.Equal(t, 1.0, trained(precision.LossScale{}), "without a scale the gradient is zero")
	require.InDelta(t, 0.99, trained(precision.FixedLossScale(1<<12)), 1e-5)
}

// A step from a file continues with the scale in its store.
func TestALossScaleOfAStepFromAFile(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	scale := precision.LossScale{Initial: 1 << 15, Interval: 2}
	store := model.NewStore()
	step := productStep(s, store, scale, train.Apply)
	_, err := step.Run(ctx, rows(2, 4))
	require.NoError(t, err)
	compiled, err := step.Compiled(ctx, rows(2, 1))
	require.NoError(t, err)
	var file bytes.Buffer
	require.NoError(t, stepfile.Save(t.Context(), &file, compiled))
	loaded, err := stepfile.LoadTrain(ctx, s, &file, store)
	require.NoError(t, err)
	_, err = loaded.Run(ctx, rows(2, 4))
	require.NoError(t, err)
	got, err := loaded.LossScale(ctx)
	require.NoError(t, err)
	require.Equal(t, train.LossScaling{Scale: 1 << 13, Skipped: 2}, got)
}

func TestPoliciesCompileAheadOfTime(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	s := strategytest.Ahead(t, "v5e:2x4", strategy.Options{Replicas: 4, LogicalDevices: 2})
	half := precision.MixedBFloat16
	half.Reduce = dtypes.BFloat16
	x, y := strategytest.BatchShapes(32)
	for name, c := range map[string]struct {
		loss   train.Loss
		policy precision.Policy
	}{"bfloat16": {models["mlp"], half}, "attention": {models["attention"], precision.MixedBFloat16},
		"float16": {models["mlp"], precision.MixedFloat16}, "layers": {layered, half}} {
		for _, guard := range []train.NonFinite{train.Apply, train.Stop} {
			step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), c.loss,
				train.Options{Precision: c.policy, NonFinite: guard}))
			_, err := step.Compiled(ctx, x, y)
			require.NoError(t, err, name)
		}
	}
}

func TestMixedFloat16TrainsAsFloat32(t *testing.T) {
	full := trainedLosses(t, 1, 1, "mlp", optimizers()["adam"], precision.Policy{})
	for _, mesh := range [][2]int{{1, 1}, {4, 2}} {
		require.InDeltaSlice(t, full, trainedLosses(t, mesh[0], mesh[1], "mlp", optimizers()["adam"], precision.MixedFloat16),
			0.005*full[0])
	}
}
