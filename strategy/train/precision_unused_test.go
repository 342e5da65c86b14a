package train_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// embedded is a model with integer inputs. Its embedding and all later layers are float32, unless
// to converts the embedding.
func embedded(to func(x *graph.Node) *graph.Node) train.Loss {
	return func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := to(layers.Embedding(rc.Scope("embedding"), in[0], dtypes.Float32, 10, 8))
		x = loop.Layers(rc.Scope("layers"), 2, x, func(scope *model.Scope, x *graph.Node) *graph.Node {
			return graph.Tanh(layers.Dense(scope, x, true, 8)) // the first product
		}, loop.Options{})
		return graph.ReduceAllMean(precision.Output(layers.Dense(rc.Scope("out"), x, true, 1)))
	}
}

func unchanged(x *graph.Node) *graph.Node { return x }

// If no operation computes in the policy's dtype, the step must not silently train in float32.
func TestAPolicyThatReachesNoOperationIsAnError(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	batch := [][]int32{{1}, {2}, {3}, {4}}
	rows := []float32{1, 2, 3, 4}
	adam := func() optimizer.Interface { return optimizer.Adam().Done() }
	scaled := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node { // without a product
		w := rc.Scope().VariableWithValue("w", float32(2)).NodeValue(rc.Graph())
		return graph.ReduceAllMean(graph.Mul(graph.ConvertDType(in[0], dtypes.Float32), w))
	}
	half := precision.Policy{Parameters: dtypes.BFloat16}
	for name, c := range map[string]struct {
		loss   train.Loss
		policy precision.Policy
		batch  any
		want   string
	}{
		"bfloat16": {embedded(unchanged), precision.MixedBFloat16, batch,
			"no operation of the model computes in BFloat16; the first one in another dtype is the Float32 product DotGeneral"},
		"float16": {embedded(unchanged), precision.MixedFloat16, batch,
			"no operation of the model computes in Float16"},
		"parameters":     {scaled, half, [][]int32{{1}, {2}}, "is the Float32 operation Mul"},
		"arguments":      {scaled, precision.MixedBFloat16, [][]int32{{1}, {2}}, "is the Float32 operation Mul"},
		"cast arguments": {scaled, precision.MixedBFloat16, rows, "is the Float32 operation Mul"},
	} {
		for _, accumulate := range []int{1, 2} {
			step := strategytest.OK(train.New(s, model.NewStore(), adam(), c.loss, train.Options{Precision: c.policy,
				Accumulate: accumulate}))
			_, err := step.Lowered(t.Context(), c.batch)
			require.ErrorContains(t, err, c.want, name)
			assert.ErrorContains(t, err, "convert the input of that layer with precision.Compute", name)
			assert.Regexp(t, `at precision_unused_test.go:(28|44);`, err.Error(), name)
			assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
		}
		held := strategytest.OK(train.NewEvaluation(s, model.NewStore(), c.loss, train.Options{Precision: c.policy}))
		_, err := held.Lowered(t.Context(), c.batch)
		assert.ErrorContains(t, err, c.want, name)
	}
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return precision.MixedBFloat16.Forward(rc.Graph(), in, func(in []*graph.Node) []*graph.Node {
			return []*graph.Node{embedded(unchanged)(rc, in)}
		})
	}, strategy.FunctionOptions{Store: model.NewStore()})
	_, err := f.Lowered(t.Context(), batch)
	assert.ErrorContains(t, err, "no operation of the model computes in BFloat16")
}

// A policy that affects at least one operation is valid.
func TestAPolicyThatReachesAnOperation(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	batch := [][]int32{{1}, {2}, {3}, {4}}
	last := func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		x := layers.Dense(rc.Scope("in"), graph.ConvertDType(in[0], dtypes.Float32), true, 8)
		return graph.ReduceAllMean(precision.Output(layers.Dense(rc.Scope("out"), precision.Compute(x), true, 1)))
	}
	variable := func(rc *strategy.ReplicaContext, _ []*graph.Node) *graph.Node {
		return rc.Scope().VariableWithValue("w", float32(2)).NodeValue(rc.Graph())
	}
	for name, c := range map[string]struct {
		loss   train.Loss
		policy precision.Policy
		batch  any
	}{
		"converted":       {embedded(precision.Compute), precision.MixedBFloat16, batch},
		"float16":         {embedded(precision.Compute), precision.MixedFloat16, batch},
		"one layer":       {last, precision.MixedBFloat16, batch},
		"float arguments": {oneLayer, precision.MixedBFloat16, [][]float32{{1}, {2}}},
		"float32":         {embedded(unchanged), precision.Float32, batch},
		"no policy":       {embedded(unchanged), precision.Policy{}, batch},
		"reduce alone": {embedded(unchanged), precision.Policy{Parameters: dtypes.Float32, Reduce: dtypes.BFloat16},
			batch},
		"no operation": {variable, precision.MixedBFloat16, batch},
	} {
		step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), c.loss,
			train.Options{Precision: c.policy}))
		_, err := step.Lowered(t.Context(), c.batch)
		assert.NoError(t, err, name)
	}
}

func oneLayer(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
	return graph.ReduceAllMean(precision.Output(layers.Dense(rc.Scope("out"), in[0], true, 1)))
}
