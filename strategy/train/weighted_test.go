package train_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

const tokens = 6 // number of tokens in a text

// texts returns a batch of rows of numbers, and a mask of the first tokens of each row. The number
// of unmasked tokens is between none and all.
func texts(rows, seed int) []any {
	x, mask := make([]float32, rows*tokens), make([]int32, rows*tokens)
	for r := range rows {
		count := (r*r*5 + 3*r + seed) % (tokens + 1)
		for i := range tokens {
			x[r*tokens+i] = float32((r*31+i*17+seed*7)%19)/19 - 0.4
			if i < count {
				mask[r*tokens+i] = 1
			}
		}
	}
	return []any{tensors.FromFlatDataAndDimensions(x, rows, tokens, 1), tensors.FromFlatDataAndDimensions(mask, rows,
		tokens)}
}

// tokenLoss is a model with a loop over layers and a regularizer. It returns the sum of the losses
// of the unmasked tokens and their number.
func tokenLoss(rc *strategy.ReplicaContext, in []*graph.Node) (sum, weight *graph.Node) {
	h := layers.Dense(rc.Scope("in"), in[0], true, 8)
	h = loop.Layers(rc.Scope("layers"), 2, h, func(scope *model.Scope, h *graph.Node) *graph.Node {
		return graph.Tanh(layers.Dense(scope.In("dense"), h, true, 8))
	}, loop.Options{})
	scope := rc.Scope("out")
	scope.SetParam(regularizer.ParamL2, 0.01)
	y := precision.Output(graph.Squeeze(layers.Dense(scope, h, true, 1), -1))
	losses := graph.Square(graph.SubScalar(y, 0.3))
	losses = graph.Mul(losses, graph.ConvertDType(in[1], losses.DType()))
	return graph.ReduceAllSum(losses), graph.ReduceAllSum(in[1])
}

// trainedState runs a few steps and returns the losses and all floats of the store.
func trainedState(t *testing.T, s *strategy.TPUStrategy, o train.Options, together bool, batches ...[]any) (losses,
	state []float64) {
	t.Helper()
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(3))
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), train.Weighted(tokenLoss), o))
	defer step.Close()
	read := func(loss *strategy.Mirrored, err error) {
		require.NoError(t, err)
		losses = append(losses, strategytest.Float64(t, loss))
	}
	if together {
		read(step.RunSteps(t.Context(), batches...))
	} else {
		for _, batch := range batches {
			read(step.Run(t.Context(), batch...))
		}
	}
	vars := s.Variables(store).All()
	slices.SortFunc(vars, func(a, b *strategy.Variable) int { return strings.Compare(a.Path(), b.Path()) })
	for _, v := range vars {
		if !v.Shape().DType.IsFloat() {
			continue
		}
		value, err := v.Value(t.Context())
		require.NoError(t, err)
		state = append(state, strategytest.Numbers(t, value)...)
	}
	return losses, state
}

// assertRelative compares numbers relative to the largest one.
func assertRelative(t *testing.T, want, got []float64, tolerance float64, what string) {
	t.Helper()
	require.Len(t, got, len(want), what)
	largest, worst := 0.0, 0.0
	for i := range want {
		require.False(t, math.IsNaN(got[i]), what)
		largest, worst = max(largest, math.Abs(want[i])), max(worst, math.Abs(want[i]-got[i]))
	}
	assert.LessOrEqual(t, worst/largest, tolerance, what)
}

// Every division of a batch over replicas and microbatches has the loss and the update of one device
// on the whole batch. Replicas and microbatches have different numbers of tokens, and some have none.
func TestAWeightedLossIsExact(t *testing.T) {
	batches := [][]any{texts(16, 0), texts(16, 3)}
	uneven := [][]any{texts(13, 0), texts(13, 3)}
	clip := train.Options{ClipNorm: 0.05}
	one := strategytest.New(t, 1, 1)
	wantLosses, wantState := trainedState(t, one, clip, false, batches...)
	unevenLosses, unevenState := trainedState(t, one, clip, false, uneven...)

	for _, c := range []struct {
		r, p, parts int
		state       logical.StateSharding
		uneven      bool
		steps       bool
	}{
		{r: 1, p: 1, parts: 5}, {r: 8, p: 1, parts: 1}, {r: 4, p: 2, parts: 4}, {r: 2, p: 4, parts: 2, steps: true},
		{r: 4, p: 2, parts: 2, state: logical.ShardOptimizer},
		{r: 4, p: 1, parts: 3, state: logical.ShardParameters}, {r: 2, p: 2, parts: 1, state: logical.ShardParameters,
			steps: true},
		{r: 8, p: 1, parts: 1, uneven: true}, {r: 4, p: 1, parts: 3, uneven: true}, {r: 2, p: 1, parts: 2,
			state: logical.ShardGradients, uneven: true},
	} {
		name := fmt.Sprintf("%dx%d in %d, %s, uneven %t, steps %t", c.r, c.p, c.parts, c.state, c.uneven, c.steps)
		t.Run(name, func(t *testing.T) {
			s := strategytest.New(t, c.r, c.p, strategy.Options{Variables: strategytest.Share(c.state, 2)})
			o := clip
			o.Accumulate = c.parts
			data, losses, state := batches, wantLosses, wantState
			if c.uneven {
				data, losses, state = uneven, unevenLosses, unevenState
			}
			gotLosses, gotState := trainedState(t, s, o, c.steps, data...)
			assertRelative(t, losses[len(losses)-len(gotLosses):], gotLosses, 1e-6, "losses")
			assertRelative(t, state, gotState, 1e-6, "variables and optimizer state")
		})
	}
}

// The loss is the sum of the losses of all unmasked tokens divided by their number, not a mean of
// means. The same holds for metrics and for an evaluation over batches of different weights.
func TestAWeightedLossIsWeighedByItsTokens(t *testing.T) {
	s := strategytest.New(t, 4, 1)
	store := model.NewStore()
	constant := train.Weighted(func(rc *strategy.ReplicaContext, in []*graph.Node) (sum, weight *graph.Node) {
		w := rc.Scope().VariableWithValue("w", float32(1)).NodeValue(rc.Graph())
		return graph.Add(graph.ReduceAllSum(graph.Mul(in[0], in[1])), graph.MulScalar(w, 0)), graph.ReduceAllSum(in[1])
	})
	x := [][]any{{[]float32{1, 2, 3, 4}, []float32{0, 1, 0, 4}}, {[]float32{8, 8, 8, 8}, []float32{1, 0, 0, 0}}}
	sgd := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done()
	step := strategytest.OK(train.New(s, store, sgd, constant, train.Options{Metrics: []train.Metric{train.MeanLoss()},
		Accumulate: 1}))
	evaluation := strategytest.OK(train.NewEvaluation(s, store, constant, train.Options{}))
	for i, want := range []float64{(2 + 16) / 5.0, 8} {
		loss, err := step.Run(t.Context(), x[i]...)
		require.NoError(t, err)
		assert.InDelta(t, want, strategytest.Float64(t, loss), 1e-6)
		require.NoError(t, evaluation.Run(t.Context(), x[i]...))
	}
	for _, read := range []func() ([]train.Reading, error){
		func() ([]train.Reading, error) { return step.Metrics(t.Context()) },
		func() ([]train.Reading, error) { return evaluation.Results(t.Context()) },
	} {
		all, err := read()
		require.NoError(t, err)
		assert.InDelta(t, (2+16+8)/6.0, all[0].Value, 1e-6)
		assert.Equal(t, 6.0, all[0].Weight)
	}
}

// A batch without unmasked tokens has loss 0 and does not change variables.
func TestAWeightedLossWithoutWeight(t *testing.T) {
	for _, parts := range []int{1, 2} {
		for _, policy := range []precision.Policy{{}, precision.MixedFloat16} {
			s := strategytest.New(t, 2, 1)
			store := model.NewStore()
			store.SetParam(model.ParamInitialSeed, int64(3))
			sgd := optimizer.StochasticGradientDescent().WithDecay(false).WithLearningRate(0.1).Done()
			step := strategytest.OK(train.New(s, store, sgd, train.Weighted(tokenLoss), train.Options{
				Accumulate: parts, Precision: policy, NonFinite: train.Stop, ClipNorm: 1,
				Metrics: []train.Metric{train.MeanLoss()}}))
			batch := texts(8, 0)
			values := func() (all []float64) {
				for _, v := range s.Variables(store).All() {
					if v.Trainable() {
						all = append(all, strategytest.Numbers(t, strategytest.OK(v.Value(t.Context())))...)
					}
				}
				return all
			}
			batch[1] = tensors.FromFlatDataAndDimensions(make([]int32, 8*tokens), 8, tokens)
			loss, err := step.Run(t.Context(), batch...)
			require.NoError(t, err)
			assert.Zero(t, strategytest.Float64(t, loss))
			first := values()
			_, err = step.Run(t.Context(), batch...)
			require.NoError(t, err)
			assert.Equal(t, first, values())
			all, err := step.Metrics(t.Context())
			require.NoError(t, err)
			assert.Zero(t, all[0].Weight)
			_, err = step.Run(t.Context(), texts(8, 0)...)
			require.NoError(t, err)
			assert.NotEqual(t, first, values())
		}
	}
}

// The loss scale of half precision does not change the update, with and without microbatches.
func TestAWeightedLossIsScaled(t *testing.T) {
	for _, policy := range []precision.Policy{precision.MixedFloat16, precision.MixedBFloat16} {
		_, want := trainedState(t, strategytest.New(t, 1, 1), train.Options{Precision: policy}, false, texts(16, 0))
		for _, parts := range []int{1, 4} {
			_, got := trainedState(t, strategytest.New(t, 2, 1), train.Options{Precision: policy, Accumulate: parts}, false,
				texts(16, 0))
			assertRelative(t, want, got, 1e-3, fmt.Sprintf("%s in %d", policy, parts))
		}
	}
}

func TestWeightedLossesThatCannotBeAreErrors(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	w := func(rc *strategy.ReplicaContext) *graph.Node {
		return rc.Scope().VariableWithValue("w", float32(1)).NodeValue(rc.Graph())
	}
	half := func(x *graph.Node) *graph.Node { return graph.ConvertDType(x, dtypes.BFloat16) }
	weighted := func(f func(rc *strategy.ReplicaContext, x *graph.Node) (sum, weight *graph.Node)) train.Loss {
		return train.Weighted(func(rc *strategy.ReplicaContext, in []*graph.Node) (sum, weight *graph.Node) {
			return f(rc, graph.ReduceAllSum(in[0]))
		})
	}
	for want, loss := range map[string]train.Loss{
		"the weighted loss has no sum": weighted(func(rc *strategy.ReplicaContext, x *graph.Node) (_,
			_ *graph.Node) {
			return nil, x
		}),
		"the weighted loss has no weight": weighted(func(rc *strategy.ReplicaContext, x *graph.Node) (_, _ *graph.Node) {
			return graph.Mul(w(rc), x), nil
		}),
		"the sum of the weighted loss is (Float32)[2]": weighted(func(rc *strategy.ReplicaContext, x *graph.Node) (_,
			_ *graph.Node) {
			return graph.BroadcastToDims(w(rc), 2), x
		}),
		"the weight of the weighted loss is BFloat16": weighted(func(rc *strategy.ReplicaContext, x *graph.Node) (_,
			_ *graph.Node) {
			return graph.Mul(w(rc), x), half(x)
		}),
		"the loss function changes what train.Weighted returned": func(rc *strategy.ReplicaContext,
			in []*graph.Node) *graph.Node {
			return graph.AddScalar(weighted(func(rc *strategy.ReplicaContext, x *graph.Node) (_,
				_ *graph.Node) {
				return graph.Mul(w(rc), x), x
			})(rc, in), 1)
		},
	} {
		step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), loss, train.Options{}))
		_, err := step.Run(t.Context(), []float32{1, 2})
		assert.ErrorContains(t, err, want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), want)
	}
	_, err := train.New(s, model.NewStore(), optimizer.Adam().Done(), train.Weighted(nil), train.Options{})
	assert.ErrorContains(t, err, "no loss function")
}
