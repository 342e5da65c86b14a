package train_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/loss"
	"github.com/gomlx/gomlx/ml/train/metric"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/checkpoint"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// classes is a classifier of 8 features into 4 classes, which reports values for metrics.
func classes(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	h := graph.Tanh(layers.Dense(rc.Scope("hidden"), in[0], true, 8))
	h = loop.Layers(rc.Scope("layers"), 2, h, func(scope *model.Scope, x *graph.Node) *graph.Node {
		train.Report(rc, "activity", graph.Abs(x), nil)
		return graph.Add(x, graph.Tanh(layers.Dense(scope.In("layer"), x, true, 8)))
	}, loop.Options{})
	logits := layers.Dense(rc.Scope("out"), logical.Split(h, 1, rc.Strategy().NumLogicalDevices()), true, 4)
	correct := train.Correct(logits, in[1])
	train.Report(rc, "accuracy", correct, nil)
	train.Report(rc, "of GoMLX", metric.SparseCategoricalAccuracyGraph(nil, []*graph.Node{in[1]}, []*graph.Node{logits}),
		nil)
	train.Report(rc, "of class 0", correct, graph.ConvertDType(graph.Equal(graph.Squeeze(in[1], -1),
		graph.ScalarZero(rc.Graph(), in[1].DType())), dtypes.Float32))
	return graph.ReduceAllMean(loss.SparseCategoricalCrossEntropyLogits([]*graph.Node{in[1]}, []*graph.Node{logits}))
}

// classBatch returns a batch for classes. The label is the index of the greatest of the first four
// features.
func classBatch(step, rows int) (x, y *tensors.Tensor) {
	xs, ys := make([]float32, rows*8), make([]int32, rows)
	for i := range xs {
		xs[i] = float32((i*37+step*101+i*i%11)%53)/53 - 0.5
	}
	for r := range ys {
		for k := range int32(4) {
			if xs[r*8+int(k)] > xs[r*8+int(ys[r])] {
				ys[r] = k
			}
		}
	}
	return tensors.FromFlatDataAndDimensions(xs, rows, 8), tensors.FromFlatDataAndDimensions(ys, rows, 1)
}

// classMetrics returns metrics of all kinds for classes.
func classMetrics() []train.Metric {
	return []train.Metric{
		train.MeanLoss(), train.Perplexity(), train.BitsPerToken(), train.Reported("accuracy"), train.Reported("of GoMLX"),
		train.Reported("of class 0"),
		train.Reported("activity"), {Name: "rows", Form: train.Total, Values: func(rc *strategy.ReplicaContext,
			in []*graph.Node) (values, weights *graph.Node) {
			return graph.OnesLike(in[1]), nil
		}},
		{Name: "mean feature", Values: func(rc *strategy.ReplicaContext, in []*graph.Node) (values, weights *graph.Node) {
			return in[0], graph.ReduceMax(graph.ConvertDType(in[1], dtypes.Float32), -1)
		}},
	}
}

func classStep(s *strategy.TPUStrategy, store *model.Store, o train.Options) *train.Step {
	return strategytest.OK(train.New(s, store,
		optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.5).Done(), classes, o))
}

// With batches of 32 and 3 rows, each metric is computed over 35 rows. Metrics and norms, also of
// stacked variables, equal those of one device.
func TestMetricsAreThoseOfAllRows(t *testing.T) {
	sys := plugintest.System(t, 8)
	batches := []int{32, 3}
	var want map[string]float64
	for _, mesh := range [][2]int{{1, 1}, {8, 1}, {4, 2}, {2, 4}} {
		t.Run(fmt.Sprintf("%dx%d", mesh[0], mesh[1]), func(t *testing.T) {
			state := logical.ShardParameters
			if mesh[0] == 2 {
				state = logical.ShardNothing
			}
			s := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1],
				Variables: strategytest.Share(state, 1)})
			step := classStep(s, strategytest.SeededStore(), train.Options{Metrics: classMetrics(), ClipNorm: 0.2, Norms: true,
				UpdateNorm: true})
			for name, value := range readings(t, step) {
				if name == "rows" {
					assert.Zero(t, value)
				} else {
					assert.True(t, math.IsNaN(value), "%s before a step", name)
				}
			}
			sum, feature, weights := 0.0, 0.0, 0.0
			for i, rows := range batches {
				x, y := classBatch(i, rows)
				l, err := step.Run(t.Context(), x, y)
				require.NoError(t, err)
				value, err := l.Float64(t.Context())
				require.NoError(t, err)
				sum += value * float64(rows)
				xs, ys := strategytest.Numbers(t, x), strategytest.Numbers(t, y)
				for k, x := range xs {
					feature += x * ys[k/8]
					weights += ys[k/8]
				}
			}
			got := readings(t, step)
			mean := sum / 35
			assert.InDelta(t, mean, got["loss"], 1e-6)
			assert.InDelta(t, math.Exp(mean), got["perplexity"], 1e-5)
			assert.InDelta(t, mean/math.Ln2, got["bits"], 1e-6)
			assert.Equal(t, 35.0, got["rows"])
			assert.InDelta(t, feature/weights, got["mean feature"], 1e-6)
			assert.InDelta(t, got["accuracy"], got["of GoMLX"], 1e-6)
			if want == nil {
				want = got
				assert.Greater(t, got["accuracy"], 0.1)
				assert.Greater(t, got["gradient_norm"], 0.2, "nothing was clipped")
			}
			for name, value := range want {
				assert.InDelta(t, value, got[name], 2e-5, name)
			}
			all, err := step.Metrics(t.Context())
			require.NoError(t, err)
			assert.Equal(t, 35.0, all[0].Weight)
			assert.Equal(t, 35.0*8*2, all[6].Weight, "of two layers")
			require.NoError(t, step.ResetMetrics(t.Context()))
			all, err = step.Metrics(t.Context())
			require.NoError(t, err)
			assert.Zero(t, all[0].Weight)
			assert.True(t, math.IsNaN(all[0].Value))
		})
	}
}

// A loop of steps, a bound step and single steps accumulate the same metrics.
func TestMetricsFollowLoopsAndBoundSteps(t *testing.T) {
	strategytest.OnMeshes(t, [][2]int{{2, 2}}, func(t *testing.T, s *strategy.TPUStrategy) {
		var batches [][]any
		for i := range 3 {
			x, y := classBatch(i, 8)
			batches = append(batches, []any{x, y})
		}
		o := train.Options{Metrics: classMetrics(), Norms: true, UpdateNorm: true}
		step := classStep(s, strategytest.SeededStore(), o)
		for _, batch := range batches {
			_, err := step.Run(t.Context(), batch...)
			require.NoError(t, err)
		}
		want := readings(t, step)
		looped := classStep(s, strategytest.SeededStore(), o)
		_, err := looped.RunSteps(t.Context(), batches...)
		require.NoError(t, err)
		for name, value := range readings(t, looped) {
			assert.InDelta(t, want[name], value, 1e-5*max(1, want[name]), name)
		}
		bound, err := looped.Bind(t.Context(), batches[0]...)
		require.NoError(t, err)
		require.NoError(t, looped.ResetMetrics(t.Context()))
		for range 2 {
			require.NoError(t, bound.Launch(t.Context()))
		}
		assert.Equal(t, 16.0, readings(t, looped)["rows"], "a reset between launches of a bound step")
	})
}

// A checkpoint with the metric state restores the metrics on any number of replicas.
func TestMetricsAreSaved(t *testing.T) {
	sys := plugintest.System(t, 4)
	dir := t.TempDir()
	var want map[string]float64
	for _, replicas := range []int{4, 2} {
		s := strategytest.On(t, sys, strategy.Options{Replicas: replicas, LogicalDevices: 4 / replicas})
		store := strategytest.SeededStore()
		step := classStep(s, store, train.Options{Metrics: classMetrics()[:4]})
		group := checkpoint.StrategyGroup(s, store)
		if replicas == 4 {
			x, y := classBatch(0, 7)
			_, err := step.Run(t.Context(), x, y)
			require.NoError(t, err)
			want = readings(t, step)
			m, err := checkpoint.OpenManager(t.Context(), dir, checkpoint.ManagerOptions{})
			require.NoError(t, err)
			require.NoError(t, m.Save(t.Context(), 1, checkpoint.StrategyGroup(s, store), checkpoint.SaveOptions{}))
			require.NoError(t, m.Close())
			continue
		}
		m, err := checkpoint.OpenManager(t.Context(), dir, checkpoint.ManagerOptions{})
		require.NoError(t, err)
		last, err := m.Latest(t.Context())
		require.NoError(t, err)
		require.NoError(t, last.Restore(t.Context(), group, checkpoint.RestoreOptions{}))
		require.NoError(t, last.Close())
		assert.Equal(t, want, readings(t, step))
	}
}

func TestMetricsThatCannotBe(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	x, y := classBatch(0, 4)
	values := func(f func(in []*graph.Node) (values, weights *graph.Node)) train.Metric {
		return train.Metric{Name: "m", Values: func(_ *strategy.ReplicaContext, in []*graph.Node) (values,
			weights *graph.Node) {
			return f(in)
		}}
	}
	for name, c := range map[string]struct {
		metrics []train.Metric
		want    string
	}{
		"nothing is reported": {[]train.Metric{train.Reported("acuracy")}, `metric "acuracy" has no Values and the loss ` +
			`function does not report it: it reports accuracy, activity, of GoMLX, of class 0`},
		"no node": {[]train.Metric{values(func([]*graph.Node) (v, w *graph.Node) { return nil, nil })},
			`metric "m" has no values`},
		"complex": {[]train.Metric{values(func(in []*graph.Node) (v, w *graph.Node) {
			return graph.Complex(in[0],
				in[0]), nil
		})}, `the values of metric "m" are (Complex64)[2, 8]`},
		"weights do not fit": {[]train.Metric{values(func(in []*graph.Node) (v, w *graph.Node) { return in[1], in[0] })},
			`the weights of metric "m" are (Float32)[2, 8], its values (Int32)[2, 1]`},
		"logits do not fit": {[]train.Metric{values(func(in []*graph.Node) (v, w *graph.Node) {
			return train.Correct(in[0],
				in[0]), nil
		})}, "Correct is given logits (Float32)[2, 8] and labels (Float32)[2, 8]"},
		"a node of another": {[]train.Metric{values(func(in []*graph.Node) (v,
			w *graph.Node) {
			panic(errors.New("its own panic"))
		})}, "its own panic"},
	} {
		t.Run(name, func(t *testing.T) {
			step := classStep(s, strategytest.SeededStore(), train.Options{Metrics: c.metrics, Norms: true})
			_, err := step.Run(t.Context(), x, y)
			var trace *strategy.TraceError
			require.ErrorAs(t, err, &trace)
			assert.ErrorContains(t, err, c.want)
			if name != "a node of another" {
				assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
			}
		})
	}
	for want, metrics := range map[string][]train.Metric{
		`two metrics are called "loss"`:          {train.MeanLoss(), train.Reported("loss")},
		`two metrics are called "gradient_norm"`: {train.Reported("gradient_norm")},
		"metric 0 has no name":                   {{}},
		`metric "accuracy" has the form Form(9)`: {{Name: "accuracy", Form: 9}},
	} {
		_, err := train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), classes, train.Options{Metrics: metrics,
			Norms: true})
		assert.ErrorContains(t, err, want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
	t.Run("a closed strategy", func(t *testing.T) {
		s := strategytest.New(t, 1, 1)
		step := classStep(s, strategytest.SeededStore(), train.Options{Metrics: classMetrics()})
		require.NoError(t, s.Close())
		_, err := step.Run(t.Context(), x, y)
		assert.ErrorIs(t, err, strategy.ErrClosed)
		_, err = step.Metrics(t.Context())
		assert.ErrorIs(t, err, strategy.ErrClosed)
		_, err = train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), classes,
			train.Options{Metrics: classMetrics()})
		assert.ErrorIs(t, err, strategy.ErrClosed)
	})
}

// Metrics do not make the program differ between traces.
func TestEveryTraceOfAMeasuredStepGivesTheSameText(t *testing.T) {
	sys := plugintest.System(t, 8)
	for _, rows := range []int{16, 7} {
		var s *strategy.TPUStrategy
		var store *model.Store
		sameText(t, func(fresh bool) []byte {
			if fresh {
				s = strategytest.On(t, sys, strategy.Options{Replicas: 4, LogicalDevices: 2,
					Variables: strategytest.Share(logical.ShardGradients, 1)})
				store = model.NewStore()
			}
			step := classStep(s, store, train.Options{Metrics: classMetrics(), Norms: true, UpdateNorm: true, ClipNorm: 1,
				NonFinite:    train.Skip,
				LearningRate: schedule.WarmUp(3, schedule.Cosine(0.1, 0, 9))})
			held := strategytest.OK(train.NewEvaluation(s, store, classes, train.Options{Metrics: classMetrics()}))
			var text []byte
			for _, lowered := range []func(context.Context, ...any) (*spmd.Module, error){step.Lowered, held.Lowered} {
				m, err := lowered(t.Context(), shapes.Make(dtypes.Float32, rows, 8), shapes.Make(dtypes.Int32, rows, 1))
				require.NoError(t, err)
				text = append(text, m.Text...)
			}
			return text
		})
	}
}

// Steps with metrics that are not read cause neither allocations nor waits on the host.
func TestMetricsThatNobodyReadCostTheHostNothing(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	x, y := classBatch(0, 4)
	allocations := func(o train.Options) float64 {
		step := classStep(s, strategytest.SeededStore(), o)
		run := func() {
			_, err := step.Run(t.Context(), x, y)
			require.NoError(t, err)
		}
		run()
		return testing.AllocsPerRun(20, run)
	}
	assert.LessOrEqual(t, allocations(train.Options{Metrics: classMetrics(), Norms: true}), allocations(train.Options{})+
		0.5)
}
