package decoder_test

import (
	"os"
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/decoder"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/precision"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// small is a decoder that compiles in a second.
func small() decoder.Config {
	return decoder.Config{Layers: 2, Width: 16, Heads: 8, KeyHeads: 4, Hidden: 24, Vocabulary: 40, Sequence: 8, Batch: 8,
		RotaryBase: 1e4, Epsilon: 1e-6}
}

// losses takes five steps and returns the loss of each.
func losses(t *testing.T, c decoder.Config, opts strategy.Options, o train.Options) (all []float64) {
	t.Helper()
	s := strategytest.New(t, max(opts.Replicas, 1), max(opts.LogicalDevices, 1), opts)
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(7))
	step := strategytest.OK(train.New(s, store, optimizer.Adam().LearningRate(1e-2).Done(), c.Loss, o))
	windows := batch(c)
	for range 5 {
		loss, err := step.Run(t.Context(), windows)
		require.NoError(t, err)
		value, err := loss.Float64(t.Context())
		require.NoError(t, err)
		all = append(all, value)
	}
	return all
}

func batch(c decoder.Config) *tensors.Tensor {
	all := make([]int32, c.BatchShape().Size())
	for i := range all {
		all[i] = int32((i*i*7 + i*31) % c.Vocabulary)
	}
	return tensors.FromFlatDataAndDimensions(all, c.BatchShape().Dimensions...)
}

func TestEveryMeshAndFormGivesTheLossesOfOneDevice(t *testing.T) {
	plain := losses(t, small(), strategy.Options{Replicas: 1}, train.Options{})
	assert.InDelta(t, 3.69, plain[0], 0.02, "the logarithm of 40")
	assert.Less(t, plain[4], plain[0]-0.1)
	for name, form := range map[string]struct {
		replicas, logical int
		state             logical.StateSharding
		keep              remat.Policy
		policy            precision.Policy
		parts             int // microbatches
		within            float64
		sampled           bool // also without TPUSTRATEGY_FORMS=all
	}{
		"8 x 1":                {8, 1, logical.ShardNothing, remat.Everything(), precision.Policy{}, 1, 2e-5, true},
		"4 x 2":                {4, 2, logical.ShardNothing, remat.Everything(), precision.Policy{}, 1, 2e-5, false},
		"2 x 4":                {2, 4, logical.ShardNothing, remat.Everything(), precision.Policy{}, 1, 2e-5, false},
		"microbatches":         {4, 2, logical.ShardOptimizer, remat.Products(), precision.Policy{}, 2, 2e-5, true},
		"optimizer in parts":   {4, 2, logical.ShardOptimizer, remat.Everything(), precision.Policy{}, 1, 2e-5, false},
		"gradients in parts":   {4, 2, logical.ShardGradients, remat.Everything(), precision.Policy{}, 1, 2e-5, false},
		"parameters in parts":  {4, 2, logical.ShardParameters, remat.Everything(), precision.Policy{}, 1, 2e-5, false},
		"products kept":        {4, 2, logical.ShardNothing, remat.Products(), precision.Policy{}, 1, 2e-5, false},
		"nothing kept, tokens": {2, 4, logical.ShardParameters, remat.Nothing(), precision.Policy{}, 1, 2e-5, true},
		"float32":              {4, 2, logical.ShardNothing, remat.Everything(), precision.Float32, 1, 2e-5, false},
		"bfloat16":             {4, 2, logical.ShardGradients, remat.Everything(), precision.MixedBFloat16, 1, 2e-2, true},
		"bfloat16 in parts":    {2, 4, logical.ShardParameters, remat.Nothing(), precision.MixedBFloat16, 1, 2e-2, false},
	} {
		if !form.sampled && os.Getenv("TPUSTRATEGY_FORMS") != "all" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := small()
			c.Remat, c.FlashAttention, c.ShardByTokens = form.keep, strings.Contains(name, "kept"), strings.Contains(name,
				"tokens")
			require.NoError(t, c.Validate(form.replicas, form.logical, form.parts))
			got := losses(t, c, strategy.Options{
				Replicas: form.replicas, LogicalDevices: form.logical, Variables: append(decoder.Rules(),
					strategytest.Share(form.state, 32)...),
			}, train.Options{Precision: form.policy, Accumulate: form.parts})
			assert.InDeltaSlice(t, plain, got, form.within)
		})
	}
}

// The report counts six products for the attention of a layer with grouped queries, and three for each
// matrix. In half precision the gradient of each product is also traced in float32, and nothing reads it.
func TestTheReportCountsTheProductsOfTheModel(t *testing.T) {
	c := small()
	tokens, head := c.Batch*c.Sequence, c.Width/c.Heads
	matrices := c.Layers*(2*c.Width*head*(c.Heads+c.KeyHeads)+3*c.Width*c.Hidden) + c.Width*c.Vocabulary
	attention := c.Layers * 2 * c.Batch * c.Heads * c.Sequence * c.Sequence * head
	s := strategytest.New(t, 1, 1, strategy.Options{})
	for _, policy := range []precision.Policy{{}, precision.MixedBFloat16} {
		step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), c.Loss,
			train.Options{Precision: policy}))
		r := strategytest.OK(report.Of(strategytest.OK(step.Compiled(t.Context(), c.BatchShape()))))
		assert.Equal(t, float64(3*2*(tokens*matrices+attention)), r.Cost.ModelFLOPs)
	}
}
