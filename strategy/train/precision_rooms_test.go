package train_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// mixedBlock is a residual layer with a layer normalization and a sharded weight.
func mixedBlock(p int) func(scope *model.Scope, x *graph.Node) *graph.Node {
	return func(scope *model.Scope, x *graph.Node) *graph.Node {
		h := norm.LayerNorm(scope.In("norm"), x, -1).Done()
		h = layers.Dense(scope.In("up"), h, true, 16)
		if p > 1 {
			h = logical.Split(h, 1, p)
		}
		return graph.Add(x, layers.Dense(scope.In("down"), graph.Tanh(h), false, 8))
	}
}

// mixedDeep is a model of 3 such layers, in a loop or in remat blocks.
func mixedDeep(looped bool) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x, layer := in[0], mixedBlock(rc.Strategy().NumLogicalDevices())
		if looped {
			x = loop.Layers(rc.Scope("layers"), 3, x, layer, loop.Options{Keep: remat.Nothing()})
		} else {
			for i := range 3 {
				scope := rc.Scope(fmt.Sprintf("layer_%d", i))
				x = remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node { return layer(scope, x) })
			}
		}
		y := layers.Dense(rc.Scope("output"), x, true, 1)
		return graph.ReduceAllMean(graph.Square(graph.Sub(precision.Output(y), precision.Output(in[1]))))
	}
}

func TestMixedPrecisionInLoopsBlocksAndSharedState(t *testing.T) {
	half := precision.MixedBFloat16
	half.Reduce = dtypes.BFloat16
	for _, looped := range []bool{true, false} {
		var want []float64
		for _, c := range []struct {
			r, p   int
			state  logical.StateSharding
			policy precision.Policy
		}{
			{1, 1, logical.ShardNothing, precision.Policy{}}, {1, 1, logical.ShardNothing, precision.MixedBFloat16},
			{2, 2, logical.ShardOptimizer, precision.MixedBFloat16}, {4, 1, logical.ShardGradients, half},
			{4, 2, logical.ShardParameters, half},
			{4, 1, logical.ShardParameters, isScaled(precision.LossScale{Initial: 1024, Interval: 2000})},
		} {
			if !looped && c.policy != precision.MixedBFloat16 && c.r*c.p < 8 || !looped && c.state == logical.ShardOptimizer {
				continue
			}
			t.Run(fmt.Sprintf("looped=%v/%dx%d/%s", looped, c.r, c.p, c.state), func(t *testing.T) {
				s := strategytest.New(t, c.r, c.p, strategy.Options{Variables: strategytest.Share(c.state, 2)})
				store := strategytest.SeededStore()
				step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), mixedDeep(looped),
					train.Options{Precision: c.policy, NonFinite: train.Skip}))
				losses := strategytest.Losses(t, step, 0, 10)
				if want == nil {
					want = losses
				}
				require.InDeltaSlice(t, want, losses, 0.02*want[0])
				for v := range store.IterVariables() {
					require.False(t, v.DType().IsHalfPrecision(), v.Path())
				}
				if c.state == logical.ShardParameters {
					require.NotZero(t, occurrences(t, step, `"stablehlo.all_gather"[^\n]* -> tensor<[0-9x]*b?f16>`))
					require.Zero(t, occurrences(t, step, `"stablehlo.all_gather"[^\n]* -> tensor<[0-9x]*f32>`),
						"parameters are gathered in half precision")
				}
				if c.policy != (precision.Policy{}) {
					require.NotZero(t, occurrences(t, step, `(?s)dot_general"?\([^)]*\).{0,400}?-> tensor<[0-9x]*b?f16>`))
				}
			})
		}
	}
}

// Partial products are sent over the logical devices in the policy's Partial dtype, and gradients
// over the replicas in its Reduce dtype.
func TestCollectivesHaveTheDtypesOfThePolicy(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	half, wide := precision.MixedBFloat16, precision.MixedBFloat16
	half.Reduce, wide.Partial = dtypes.BFloat16, dtypes.Float32
	s := strategytest.Ahead(t, "v5e:4x4", strategy.Options{Replicas: 4, LogicalDevices: 4, Variables: logical.Rules{
		logical.Match(`up/dense/weights`, logical.SplitInto(1, 4)), logical.Match(`down/dense/weights`,
			logical.SplitInto(4, 1)),
	}})
	loss := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := in[0]
		for _, scope := range []string{"first", "second"} {
			x = graph.Tanh(layers.Dense(rc.Scope(scope, "up"), x, false, 1024))
			x = layers.Dense(rc.Scope(scope, "down"), x, false, 256)
		}
		return graph.ReduceAllMean(graph.Square(precision.Output(x)))
	}
	const rows, width, pairs = 128, 256, 2
	for _, c := range []struct {
		policy           precision.Policy
		logical, replica string
	}{{precision.Policy{}, "f32", "f32"}, {precision.MixedBFloat16, "bf16", "f32"}, {half, "bf16", "bf16"},
		{wide, "f32", "f32"}} {
		step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), loss,
			train.Options{Precision: c.policy}))
		compiled, err := step.Compiled(t.Context(), shapes.Make(dtypes.Float32, 4*rows, width))
		require.NoError(t, err)
		r, err := report.Of(compiled)
		require.NoError(t, err)
		by := map[string]int64{}
		for _, x := range r.CollectiveDTypes {
			if bytes := x.Bytes &^ 15; bytes > 0 { // the loss is a scalar
				by[x.Axis+" "+x.DType] += bytes
			}
		}
		size := map[string]int64{"f32": 4, "bf16": 2}
		weights := int64(2 * pairs * 1024 * width / 4)
		require.Equal(t, map[string]int64{
			"logical " + c.logical: size[c.logical] * (2*pairs - 1) * rows * width, // the batch has no adjoint
			"replica " + c.replica: size[c.replica] * weights,
		}, by, c.policy)
	}
}

// A variable of the strategy is read without conversion and trained in float32.
func TestVariablesOfTheStrategyUnderAPolicy(t *testing.T) {
	ctx := t.Context()
	trained := func(policy precision.Policy) []float64 {
		s := strategytest.New(t, 2, 1)
		w, err := s.NewVariable(ctx, [][]float32{{1}, {1}, {1}, {1}, {1}, {1}, {1}, {1}}, strategy.VariableOptions{Name: "w"})
		require.NoError(t, err)
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				require.Equal(t, dtypes.Float32, rc.Read(w).DType())
				y := graph.Add(graph.Dot(in[0], precision.Compute(rc.Read(w))).Product(), layers.Dense(rc.Scope("dense"), in[0],
					true, 1))
				return graph.ReduceAllMean(graph.Square(graph.Sub(precision.Output(y), precision.Output(in[1]))))
			}, train.Options{Precision: policy}))
		strategytest.Losses(t, step, 0, 5)
		value, err := w.Value(ctx)
		require.NoError(t, err)
		return strategytest.Numbers(t, value)
	}
	full, mixed := trained(precision.Policy{}), trained(precision.MixedBFloat16)
	require.InDeltaSlice(t, full, mixed, 0.02)
	require.NotEqual(t, full, mixed)
	require.NotContains(t, mixed, 1.0)
}
