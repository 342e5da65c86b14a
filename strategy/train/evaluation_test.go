package train_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
)

// moody is classes with layers that behave differently in training.
func moody(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	x := norm.BatchNorm(rc.Scope("batch"), in[0], -1).Done()
	x = layers.DropoutStatic(rc.Scope("drop"), x, 0.3)
	return classes(rc, []*graph.Node{x, in[1]})
}

// heldOut returns 24 rows in batches of the given sizes.
func heldOut(rows ...int) iter.Seq2[[]any, error] {
	return func(yield func([]any, error) bool) {
		x, y := classBatch(100, 24)
		xs, ys := tensors.MustCopyFlatData[float32](x), tensors.MustCopyFlatData[int32](y)
		at := 0
		for _, n := range rows {
			batch := []any{tensors.FromFlatDataAndDimensions(xs[at*8:(at+n)*8], n, 8),
				tensors.FromFlatDataAndDimensions(ys[at:at+n], n, 1)}
			if at += n; !yield(batch, nil) {
				return
			}
		}
	}
}

// An evaluation, before and between training steps, equals the evaluation of all rows at once on
// one device. It runs in evaluation mode and changes no variable, so that a second evaluation has
// the same results.
func TestEvaluationIsThatOfAllRows(t *testing.T) {
	sys := plugintest.System(t, 8)
	var want []train.Reading
	for _, mesh := range [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			s := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1],
				Variables: strategytest.Share(logical.ShardParameters, 1)})
			store := strategytest.SeededStore()
			held := strategytest.OK(train.NewEvaluation(s, store, moody, train.Options{Metrics: classMetrics()}))
			evaluate := func(rows ...int) []train.Reading {
				all, err := held.Over(t.Context(), heldOut(rows...))
				require.NoError(t, err)
				return all
			}
			alike := func(want, got []train.Reading) {
				for i := range want {
					assert.InDelta(t, want[i].Value, got[i].Value, 2e-5, want[i].Name)
					assert.InDelta(t, want[i].Weight, got[i].Weight, 1e-9, want[i].Name)
				}
			}
			first := evaluate(21, 3)
			if want == nil {
				want = evaluate(24)
			}
			alike(want, first)
			if mesh[0] != 4 {
				return
			}
			step := classStep(s, store, train.Options{Metrics: classMetrics()[:4]})
			moodyStep := strategytest.OK(train.New(s, store,
				optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.05).Done(), moody,
				train.Options{Metrics: classMetrics()[:4]}))
			for _, step := range []*train.Step{step, moodyStep} {
				for i := range 2 {
					x, y := classBatch(i, 32)
					_, err := step.Run(t.Context(), x, y)
					require.NoError(t, err)
				}
			}
			before, trained := values(t, s, store), readings(t, moodyStep)
			now := evaluate(21, 3)
			assert.Less(t, now[0].Value, first[0].Value, "it learns")
			alike(now, evaluate(24))
			assert.Equal(t, now, evaluate(21, 3))
			requireAlike(t, before, values(t, s, store), 0)
			assert.Equal(t, trained, readings(t, moodyStep), "the training's own metrics")
			x, y := classBatch(2, 32)
			_, err := moodyStep.Run(t.Context(), x, y)
			require.NoError(t, err)
			assert.NotEqual(t, now, evaluate(21, 3), "of the variables as they are now")
		})
	}
}

func TestEvaluationsThatCannotBe(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	held := strategytest.OK(train.NewEvaluation(s, strategytest.SeededStore(), classes, train.Options{}))
	assert.Equal(t, []string{"loss"}, held.MetricNames())
	_, err := held.Over(t.Context(), heldOut())
	require.ErrorContains(t, err, "train: evaluation: no rows were evaluated")
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	_, err = held.Over(t.Context(), nil)
	require.ErrorContains(t, err, "the iterator is nil")
	broken := errors.New("the file ends")
	_, err = held.Over(t.Context(), func(yield func([]any, error) bool) { yield(nil, broken) })
	assert.ErrorIs(t, err, broken)
	require.Error(t, held.Run(t.Context(), "no tensor"))
	x, _ := classBatch(0, 4)
	require.Error(t, held.Run(t.Context(), x))
	for name, c := range map[string]struct {
		loss    train.Loss
		metrics []train.Metric
		want    string
	}{
		"no loss": {nil, nil, "there is no loss function"},
		"nothing": {func(*strategy.ReplicaContext, []*graph.Node) *graph.Node { return nil }, nil,
			"the loss function returned no node"},
		"no scalar": {func(_ *strategy.ReplicaContext, in []*graph.Node) *graph.Node { return in[0] }, nil,
			"the loss is (Float32)[2, 8]"},
		"two of one name": {classes, []train.Metric{train.MeanLoss(), train.MeanLoss()}, `two metrics are called "loss"`},
	} {
		held, err := train.NewEvaluation(s, strategytest.SeededStore(), c.loss, train.Options{Metrics: c.metrics})
		if err == nil {
			x, y := classBatch(0, 4)
			err = held.Run(t.Context(), x, y)
		}
		require.ErrorContains(t, err, c.want, name)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	// Every option that only applies to training is rejected by name, including future options.
	for i, of := 0, reflect.TypeFor[train.Options](); i < of.NumField(); i++ {
		var o train.Options
		name, field := of.Field(i).Name, reflect.ValueOf(&o).Elem().Field(i)
		switch field.Kind() {
		case reflect.Bool:
			field.SetBool(true)
		case reflect.Int:
			field.SetInt(1)
		case reflect.Float64:
			field.SetFloat(0.5)
		case reflect.Slice:
			field.Set(reflect.MakeSlice(field.Type(), 0, 1))
		case reflect.Func:
			o.FreezeIf = func(string) bool { return false }
		case reflect.Struct:
			if name == "LearningRate" {
				o.LearningRate = schedule.Constant(0.1)
			}
		}
		_, err := train.NewEvaluation(s, strategytest.SeededStore(), classes, o)
		if slices.Contains([]string{"Name", "Arguments", "LocalBatch", "UnequalRows", "MirroredRandomNumbers", "Precision",
			"Metrics"}, name) {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, "is for training", name)
	}
	closed := strategytest.New(t, 1, 1)
	held = strategytest.OK(train.NewEvaluation(closed, strategytest.SeededStore(), classes, train.Options{}))
	require.NoError(t, closed.Close())
	_, err = held.Over(t.Context(), heldOut(4))
	assert.ErrorIs(t, err, strategy.ErrClosed)
}

// Each process evaluates on its own devices.
func TestProcessesEvaluateTogether(t *testing.T) {
	sys := plugintest.System(t, 4)
	run := func(ctx context.Context, s *strategy.TPUStrategy) (evaluated, trained []train.Reading, err error) {
		store := strategytest.SeededStore()
		step := classStep(s, store, train.Options{Metrics: classMetrics(), Norms: true, ClipNorm: 0.1})
		held := strategytest.OK(train.NewEvaluation(s, store, classes, train.Options{Metrics: classMetrics()}))
		for i := range 2 {
			x, y := classBatch(i, 8)
			if _, err := step.Run(ctx, x, y); err != nil {
				return nil, nil, err
			}
		}
		if evaluated, err = held.Over(ctx, heldOut(16, 8)); err != nil {
			return nil, nil, err
		}
		trained, err = step.Metrics(ctx)
		return evaluated, trained, err
	}
	evaluated, trained, err := run(t.Context(), strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 1}))
	require.NoError(t, err)
	strategytest.NoErrors(t, strategytest.OnProcesses(t, sys, simhost.Options{Processes: 2}, strategy.Options{Replicas: 2,
		LogicalDevices: 2, Variables: strategytest.Share(logical.ShardParameters, 1)}, func(ctx context.Context,
		s *strategy.TPUStrategy) error {
		e, tr, err := run(ctx, s)
		for i, r := range e {
			assert.InDelta(t, evaluated[i].Value, r.Value, 2e-5, r.Name)
		}
		for i, r := range tr {
			assert.InDelta(t, trained[i].Value, r.Value, 2e-5, r.Name)
		}
		return err
	}))
}

// A compiled evaluation has no gradients and at most one all-reduce.
func TestAnEvaluationIsAStepWithoutGradients(t *testing.T) {
	s := strategytest.New(t, 4, 2)
	held := strategytest.OK(train.NewEvaluation(s, strategytest.SeededStore(), classes,
		train.Options{Metrics: classMetrics()}))
	x, y := classBatch(0, 8)
	m, err := held.Lowered(t.Context(), x, y)
	require.NoError(t, err)
	assert.NotContains(t, string(m.Text), "stablehlo.all_reduce")
	_, err = held.Compiled(t.Context(), x.Shape(), y.Shape())
	require.NoError(t, err)
}
