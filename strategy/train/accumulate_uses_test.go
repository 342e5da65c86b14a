package train_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
	"github.com/tpustrategy/tpustrategy/strategy/train/schedule"
)

// sums returns batches with the given numbers of rows.
func sums(rows ...int) (batches [][]any) {
	for _, n := range rows {
		x, y := strategytest.Sums(n, 8)
		batches = append(batches, []any{x, y})
	}
	return batches
}

func TestMicrobatchesWithPaddedRowsAreThoseOfTheBatch(t *testing.T) {
	sys := plugintest.System(t, 8)
	sgd := func() optimizer.Interface { return optimizer.StochasticGradientDescent().WithLearningRate(0.05).Done() }
	batches := sums(13, 1)
	want := trainOn(t, strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 1}), sgd(), odd(1),
		train.Options{}, batches...)
	for _, c := range [][3]int{{1, 1, 4}, {4, 1, 2}, {2, 2, 100}} {
		t.Run(fmt.Sprintf("%dx%d in %d", c[0], c[1], c[2]), func(t *testing.T) {
			s := strategytest.On(t, sys, strategy.Options{Replicas: c[0], LogicalDevices: c[1], Variables: oddRules(c[1])})
			got := trainOn(t, s, sgd(), odd(c[1]), train.Options{Accumulate: c[2]}, batches...)
			want.equals(t, got, 1e-5)
		})
	}
}

func TestMicrobatchesInLoopsOfLayersAndSharedState(t *testing.T) {
	sys := plugintest.System(t, 8)
	adam := func() optimizer.Interface { return optimizer.Adam().LearningRate(0.02).Done() }
	batches := sums(16, 16)
	want := trainOn(t, strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalDevices: 1}), adam(),
		deep(remat.Everything()), train.Options{}, batches...)
	for _, c := range []struct {
		r, p  int
		state logical.StateSharding
		keep  remat.Policy
	}{
		{1, 1, logical.ShardNothing, remat.Nothing()},
		{8, 1, logical.ShardParameters, remat.Products()},
		{2, 2, logical.ShardParameters, remat.Everything()},
		{2, 1, logical.ShardGradients, remat.Nothing()},
		{2, 1, logical.ShardOptimizer, remat.Nothing()},
	} {
		t.Run(fmt.Sprintf("%dx%d %s %s", c.r, c.p, c.state, c.keep), func(t *testing.T) {
			s := strategytest.On(t, sys, deepOptions(c.r, c.p, c.state))
			got := trainOn(t, s, adam(), deep(c.keep), train.Options{Accumulate: 2}, batches...)
			want.equals(t, got, 1e-4)
		})
	}
}

func TestMicrobatchesUnderAPolicy(t *testing.T) {
	sys := plugintest.System(t, 8)
	for name, c := range map[string]struct {
		o    train.Options
		near float64
	}{
		"bfloat16": {train.Options{Precision: precision.MixedBFloat16}, 3e-2},
		"float16, guarded": {train.Options{Precision: precision.Policy{Compute: dtypes.Float16,
			LossScale: precision.LossScale{Initial: 128, Interval: 2, Factor: 2}}, NonFinite: train.Skip}, 1e-2},
		"float16, fixed scale": {train.Options{Precision: precision.Policy{Compute: dtypes.Float16,
			LossScale: precision.LossScale{Initial: 64}}}, 1e-2},
	} {
		t.Run(name, func(t *testing.T) {
			s := strategytest.On(t, sys, strategy.Options{LogicalDevices: 1, Replicas: 2})
			adam := func() optimizer.Interface { return optimizer.Adam().LearningRate(0.01).Done() }
			batches := sums(16, 16)
			want := trainOn(t, s, adam(), odd(1), c.o, batches...)
			o := c.o
			o.Accumulate = 4
			want.equals(t, trainOn(t, s, adam(), odd(1), o, batches...), c.near)
		})
	}
}

// noisy is a model whose loss has random numbers, regularizers and moving averages of a layer, and
// which counts in variables of the strategy.
func noisy(own, all *strategy.Variable, numbers bool) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		rows := graph.Const(rc.Graph(), int32(in[0].Shape().Dimensions[0]))
		rc.AssignAdd(own, rows)
		rc.AssignAdd(all, graph.ConvertDType(rows, dtypes.Float32))
		x := in[0]
		if numbers {
			x = graph.Add(x, graph.MulScalar(rc.Scope().RandomNormal(rc.Graph(), x.Shape()), 0.1))
		}
		return graph.Mul(in[2], odd(rc.Strategy().NumLogicalDevices())(rc, append([]*graph.Node{x}, in[1:]...)))
	}
}

func TestWhatAStepWritesGoesFromMicrobatchToMicrobatch(t *testing.T) {
	for _, mesh := range [][2]int{{1, 1}, {2, 2}} {
		t.Run(fmt.Sprint(mesh), func(t *testing.T) {
			s := strategytest.New(t, mesh[0], mesh[1])
			own, err := s.NewVariable(t.Context(), int32(0), strategy.VariableOptions{Name: "own",
				Synchronization: strategy.OnRead, Aggregation: strategy.AggregateSum})
			require.NoError(t, err)
			frozen := false
			all, err := s.NewVariable(t.Context(), float32(0), strategy.VariableOptions{Name: "all", Trainable: &frozen,
				Aggregation: strategy.AggregateSum})
			require.NoError(t, err)
			half, err := s.Mirror(t.Context(), float32(0.5), logical.Annotation{}) // the same for each microbatch
			require.NoError(t, err)
			sgd := optimizer.StochasticGradientDescent().WithLearningRate(0.05).Done()
			var got []trained
			batch := append(sums(16)[0], half)
			for _, n := range []int{1, 4} {
				got = append(got, trainOn(t, s, sgd, noisy(own, all, false), train.Options{Accumulate: n}, batch))
			}
			got[0].equals(t, got[1], 1e-5)
			for range 2 {
				got = append(got, trainOn(t, s, sgd, noisy(own, all, true), train.Options{Accumulate: 4}, batch))
			}
			got[2].equals(t, got[3], 0)
			assert.NotEqual(t, got[1].losses, got[2].losses)
			for _, v := range []*strategy.Variable{own, all} {
				value, err := v.Value(t.Context())
				require.NoError(t, err)
				assert.Equal(t, []float64{64}, strategytest.Numbers(t, value))
			}
		})
	}
}

func TestRegularizersCountOnceForAllMicrobatches(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	fit := func(o train.Options) trained {
		loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			scope := rc.Scope("out")
			scope.SetParam(regularizer.ParamL2, 0.5)
			return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(scope, in[0], true, 1), in[1])))
		}
		return trainOn(t, s, optimizer.StochasticGradientDescent().WithLearningRate(0.05).Done(), loss, o, sums(16, 16)...)
	}
	fit(train.Options{}).equals(t, fit(train.Options{Accumulate: 4}), 1e-5)
}

func TestAllKindsOfStepsAccumulate(t *testing.T) {
	s := strategytest.New(t, 2, 2)
	sgd := func() optimizer.Interface { return optimizer.StochasticGradientDescent().WithLearningRate(0.05).Done() }
	batches := sums(16, 16, 16)
	want := trainOn(t, s, sgd(), odd(2), train.Options{}, batches...)
	store := strategytest.SeededStore()
	store.SetParam(model.ParamInitialSeed, int64(42))
	step := strategytest.OK(train.New(s, store, sgd(), odd(2), train.Options{Accumulate: 4}))
	_, err := step.RunSteps(t.Context(), batches[:2]...)
	require.NoError(t, err)
	var here []any
	for _, x := range batches[2] {
		v, err := s.SplitBatch(t.Context(), x, logical.Annotation{}, false)
		require.NoError(t, err)
		here = append(here, v)
	}
	bound, err := step.Bind(t.Context(), here...)
	require.NoError(t, err)
	require.NoError(t, bound.Launch(t.Context()))
	requireAlike(t, want.values, values(t, s, store), 1e-5)
}

func TestMetricsAndNormsOfMicrobatches(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	read := func(n int) map[string]float64 {
		step := classStep(s, strategytest.SeededStore(), train.Options{Accumulate: n, Metrics: classMetrics(), Norms: true,
			ClipNorm: 0.1, LearningRate: schedule.Constant(0.01)})
		x, y := classBatch(1, 11)
		_, err := step.Run(t.Context(), x, y)
		require.NoError(t, err)
		return readings(t, step)
	}
	want, got := read(0), read(3)
	require.Len(t, got, len(want))
	for name, value := range want {
		assert.InEpsilon(t, value, got[name], 1e-4, name)
	}
}

// Sharded variables are gathered once for all microbatches, in half precision if the policy reads
// them so. Their gradients are scattered once, in float32.
func TestMicrobatchesGatherInHalfPrecision(t *testing.T) {
	s := strategytest.New(t, 2, 1, sharded(2, 1, logical.ShardParameters))
	text := func(n int) string {
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), odd(1),
			train.Options{Accumulate: n, Precision: precision.MixedBFloat16}))
		m, err := step.Lowered(t.Context(), sums(8)[0]...)
		require.NoError(t, err)
		return string(m.Text)
	}
	dtypes := func(text, op string) (found []string) {
		for _, line := range regexp.MustCompile(`stablehlo.`+op+
			`"[^\n]*(?:\n[^\n]*){0,4}-> tensor<[\dx]*x(b?f\d\d)>`).FindAllStringSubmatch(text, -1) {
			found = append(found, line[1])
		}
		slices.Sort(found)
		return found
	}
	whole, parts := text(0), text(4)
	for _, op := range []string{"all_gather", "reduce_scatter"} {
		require.NotEmpty(t, dtypes(whole, op))
		assert.Equal(t, dtypes(whole, op), dtypes(parts, op), op)
	}
	assert.Contains(t, dtypes(parts, "all_gather"), "bf16")
}
