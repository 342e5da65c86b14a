package train_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/attention"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/layers/regularizer"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// regression is the loss of a model of GoMLX layers that do not specify dtypes.
func regression(of func(scope *model.Scope, x *graph.Node) *graph.Node) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		y := layers.Dense(rc.Scope("output"), of(rc.Scope("model"), in[0]), true, 1)
		return graph.ReduceAllMean(graph.Square(graph.Sub(precision.Output(y), precision.Output(in[1]))))
	}
}

// mlp has sharded activations and weights.
func mlp(scope *model.Scope, x *graph.Node) *graph.Node {
	h := layers.Dense(scope.In("hidden"), x, true, 16)
	if target, ok := x.Graph().Backend().(logical.Target); ok {
		h = logical.Split(h, 1, target.LogicalDevices())
	}
	return graph.Tanh(h)
}

// attended reads the features as a sequence of 8 and applies attention.
func attended(scope *model.Scope, x *graph.Node) *graph.Node {
	h := layers.Dense(scope.In("embed"), graph.InsertAxes(x, -1), true, 8)
	h = norm.LayerNorm(scope.In("norm"), h, -1).Done()
	h = attention.SelfAttention(scope.In("attention"), h, 2, 4).Done()
	return graph.ReduceMean(h, 1)
}

var models = map[string]train.Loss{"mlp": regression(mlp), "attention": regression(attended)}

func optimizers() map[string]optimizer.Interface {
	return map[string]optimizer.Interface{
		"adam": optimizer.Adam().LearningRate(0.01).Done(),
		"sgd":  optimizer.StochasticGradientDescent().WithLearningRate(0.005).WithDecay(false).Done(),
	}
}

func trainedLosses(t *testing.T, r, p int, name string, opt optimizer.Interface, policy precision.Policy) []float64 {
	rule := logical.Match(`hidden/.*weights`, logical.SplitInto(1, p))
	rule.Optional = true
	s := strategytest.New(t, r, p, strategy.Options{Variables: logical.Rules{rule}})
	step := strategytest.OK(train.New(s, strategytest.SeededStore(), opt, models[name], train.Options{Precision: policy}))
	return strategytest.Losses(t, step, 0, 20)
}

// Over 20 steps the losses in bfloat16, which has 8 bits of precision, differ from those in float32
// by at most 2% of the first loss. The losses on a mesh differ from those on one device by at most
// 1%.
func TestMixedPrecisionTrainsAsFloat32(t *testing.T) {
	for _, c := range []struct {
		model, optimizer string
		meshes           [][2]int
	}{
		{"mlp", "adam", [][2]int{{8, 1}, {4, 2}}}, {"mlp", "sgd", [][2]int{{8, 1}, {4, 2}}},
		{"attention", "adam", [][2]int{{4, 2}}},
	} {
		t.Run(c.model+"/"+c.optimizer, func(t *testing.T) {
			opt := optimizers()[c.optimizer]
			full := trainedLosses(t, 1, 1, c.model, opt, precision.Policy{})
			mixed := trainedLosses(t, 1, 1, c.model, opt, precision.MixedBFloat16)
			require.NotEqual(t, full, mixed)
			require.True(t, c.optimizer == "sgd" || mixed[19] < mixed[0], mixed)
			require.InDeltaSlice(t, full, mixed, 0.02*full[0])
			for _, mesh := range c.meshes {
				require.InDeltaSlice(t, mixed, trainedLosses(t, mesh[0], mesh[1], c.model, opt, precision.MixedBFloat16),
					0.01*mixed[0], "%dx%d", mesh[0], mesh[1])
			}
		})
	}
}

// occurrences counts the matches of a pattern in a step's program.
func occurrences(t *testing.T, step *train.Step, pattern string) int {
	t.Helper()
	x, y := strategytest.Batch(0)
	m, err := step.Lowered(context.Background(), x, y)
	require.NoError(t, err)
	return len(regexp.MustCompile(pattern).FindAllIndex(m.Text, -1))
}

const reduced = `(?s)"stablehlo.all_reduce"[^>]*?tensor<%[1]s>.{0,400}?-> tensor<[0-9x]*%[1]s>`

func TestGradientsAreReducedInTheDtypeOfThePolicy(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	for _, c := range []struct {
		reduce     dtypes.DType
		full, half int
	}{{dtypes.InvalidDType, 5, 0}, {dtypes.Float32, 5, 0}, {dtypes.BFloat16, 1, 4}} { // the loss is one
		policy := precision.MixedBFloat16
		policy.Reduce = c.reduce
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), models["mlp"],
			train.Options{Precision: policy}))
		require.Equal(t, c.full, occurrences(t, step, fmt.Sprintf(reduced, "f32")), c.reduce)
		require.Equal(t, c.half, occurrences(t, step, fmt.Sprintf(reduced, "bf16")), c.reduce)
		require.Less(t, strategytest.Losses(t, step, 0, 10)[9], 0.25)
	}
}

// layered has state besides weights: moving averages of a batch normalization, random numbers of a
// dropout, a regularizer, a layer in float32, and regions of logical devices.
func layered(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	scope := rc.Scope("model")
	hidden := scope.In("hidden")
	hidden.SetParam(regularizer.ParamL2, 1e-3)
	h := layers.Dense(hidden, in[0], true, 16)
	h = norm.BatchNorm(scope.In("batch"), h, -1).Done()
	h = layers.Dropout(scope, graph.Tanh(h), precision.Compute(graph.Const(rc.Graph(), float32(0.1))))
	h = precision.FullPrecision(h, func(h *graph.Node) *graph.Node {
		return norm.BatchNorm(scope.In("full"), h,
			-1).Done()
	})
	h = logical.OnDevice(rc.Strategy().NumLogicalDevices()-1, h, func(h *graph.Node) *graph.Node {
		return graph.Add(h, layers.Dense(scope.In("expert"), h, true, 16))
	})
	y := layers.Dense(scope.In("output"), h, true, 1)
	return graph.ReduceAllMean(graph.Square(graph.Sub(precision.Output(y), precision.Output(in[1]))))
}

func TestWhatLayersKeepStaysInFloat32(t *testing.T) {
	ctx := context.Background()
	var want map[string][]float64
	var losses []float64
	for _, c := range []struct {
		r, p   int
		policy precision.Policy
	}{{1, 1, precision.Policy{}}, {1, 1, precision.MixedBFloat16}, {2, 2, precision.MixedBFloat16}} {
		s := strategytest.New(t, c.r, c.p)
		store := strategytest.SeededStore()
		step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(0.01).Done(), layered,
			train.Options{Precision: c.policy, NonFinite: train.Skip}))
		all := strategytest.Losses(t, step, 0, 10)
		got := map[string][]float64{}
		for _, v := range s.Variables(store).All() {
			value, err := v.Value(ctx)
			require.NoError(t, err)
			require.False(t, value.DType().IsHalfPrecision(), v.Path())
			if value.DType() == dtypes.Float32 {
				got[v.Path()] = strategytest.Numbers(t, value)
			}
		}
		counts, err := step.NonFinite(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 10, counts.Steps)
		if want == nil {
			want, losses = got, all
			continue
		}
		require.Len(t, got, len(want))
		for _, path := range []string{"/model/batch/batch_normalization/", "/model/full/batch_normalization/"} {
			require.Equal(t, want[path+"avg_weight"], got[path+"avg_weight"])
			for _, name := range []string{"mean", "variance"} {
				require.InDeltaSlice(t, want[path+name], got[path+name], 0.05, "%s%s on %dx%d", path, name, c.r, c.p)
				odd := 0 // numbers that bfloat16 cannot represent
				for _, x := range got[path+name] {
					if float32(x) != bfloat16.FromFloat32(float32(x)).Float32() {
						odd++
					}
				}
				require.Greater(t, odd, 8, "%s%s is kept in float32", path, name)
			}
		}
		require.InDelta(t, losses[9], all[9], 0.1*losses[0])
	}
}

func TestMixedPrecisionInLoopsAndBoundSteps(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	options := train.Options{Precision: precision.MixedBFloat16}
	x, y := strategytest.Batch(0)
	run := func(take func(step *train.Step) (*strategy.Mirrored, error)) float64 {
		loss, err := take(strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
			models["mlp"], options)))
		require.NoError(t, err)
		return strategytest.Float64(t, loss)
	}
	want := run(func(step *train.Step) (loss *strategy.Mirrored, err error) {
		for range 3 {
			loss, err = step.Run(ctx, x, y)
		}
		return loss, err
	})
	require.Equal(t, want, run(func(step *train.Step) (*strategy.Mirrored, error) {
		return step.RunSteps(ctx, []any{x, y}, []any{x, y}, []any{x, y})
	}))
	require.Equal(t, want, run(func(step *train.Step) (*strategy.Mirrored, error) {
		bound, err := step.Bind(ctx, x, y)
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, bound.Launch(ctx))
		}
		return bound.Results()[0].(*strategy.Mirrored), nil
	}))
}

// A store that was trained in float32 can be trained further in bfloat16 with the same variables,
// and vice versa, also by plain steps.
func TestPoliciesShareAStore(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	store := strategytest.SeededStore()
	opt := optimizer.Adam().LearningRate(0.01).Done()
	full := strategytest.OK(train.New(s, store, opt, models["mlp"], train.Options{}))
	mixed := strategytest.OK(train.New(s, store, opt, models["mlp"], train.Options{Name: "mixed",
		Precision: precision.MixedBFloat16}))
	losses := append(strategytest.Losses(t, full, 0, 5), strategytest.Losses(t, mixed, 5, 10)...)
	losses = append(losses, strategytest.Losses(t, full, 10, 15)...)
	alone := strategytest.Losses(t, strategytest.OK(train.New(s, strategytest.SeededStore(), opt, models["mlp"],
		train.Options{})), 0, 15)
	require.InDeltaSlice(t, alone, losses, 0.02*losses[0])
	eval := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return precision.MixedBFloat16.Forward(rc.Graph(), in, func(in []*graph.Node) []*graph.Node {
			return []*graph.Node{models["mlp"](rc, in)}
		})
	}, strategy.FunctionOptions{Store: store, SplitBatch: true})
	x, y := strategytest.Batch(15)
	result, err := eval.Run(ctx, x, y)
	require.NoError(t, err)
	value, err := result[0].Local(ctx, 0)
	require.NoError(t, err)
	require.Equal(t, dtypes.Float32, value.DType())
	require.InDelta(t, losses[14], value.Value(), 0.05)
}

// A batch that the replicas do not divide is padded.
func TestMixedPrecisionOfUnevenBatches(t *testing.T) {
	ctx := context.Background()
	x, y := strategytest.Batch(0)
	cut := func(x *tensors.Tensor, width int) *tensors.Tensor {
		return tensors.FromFlatDataAndDimensions(tensors.MustCopyFlatData[float32](x)[:3*width], 3, width)
	}
	var want float64
	for _, c := range []struct {
		replicas int
		policy   precision.Policy
	}{{1, precision.Policy{}}, {1, precision.MixedBFloat16}, {2, precision.MixedBFloat16},
		{4, isScaled(precision.LossScale{Initial: 1024, Interval: 2000})}} {
		s := strategytest.New(t, c.replicas, 1)
		step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(),
			models["mlp"], train.Options{Precision: c.policy}))
		var last float64
		for range 5 {
			loss, err := step.Run(ctx, cut(x, 8), cut(y, 1))
			require.NoError(t, err)
			last = strategytest.Float64(t, loss)
		}
		if want == 0 {
			want = last
		}
		require.InDelta(t, want, last, 0.02*want, "%d replicas, %s", c.replicas, c.policy)
	}
}

func TestValidateRejectsInvalidPoliciesAreErrorsOfTheStep(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	for text, policy := range map[string]precision.Policy{
		"Policy.Compute: Int32":                {Compute: dtypes.Int32},
		"Policy.Reduce: Complex64":             {Reduce: dtypes.Complex64},
		"Policy.Accumulate: sums in BFloat16 ": {Accumulate: dtypes.BFloat16},
	} {
		_, err := train.New(s, strategytest.SeededStore(), optimizer.Adam().Done(), models["mlp"],
			train.Options{Precision: policy})
		require.ErrorContains(t, err, "precision: "+text)
		require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}
