package report_test

import (
	"testing"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/examples/gpt/decoder"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/precision"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// A decoder with grouped queries has six products for attention in each layer, and three for each matrix.
// In half precision the gradient of each product is also traced in float32, and nothing reads that one.
func TestModelFLOPsOfADecoderAreThoseOfItsProducts(t *testing.T) {
	s := strategytest.On(t, plugintest.System(t, 1), strategy.Options{})
	c := decoder.Config{Layers: 2, Width: 64, Heads: 8, KeyHeads: 2, Hidden: 96, Vocabulary: 128, Sequence: 16, Batch: 2, Theta: 1e4, Epsilon: 1e-6}
	tokens, head := c.Batch*c.Sequence, c.Width/c.Heads
	matrices := c.Layers*(2*c.Width*head*(c.Heads+c.KeyHeads)+3*c.Width*c.Hidden) + c.Width*c.Vocabulary
	attention := c.Layers * 2 * c.Batch * c.Heads * c.Sequence * c.Sequence * head
	for _, policy := range []precision.Policy{{}, precision.MixedBFloat16} {
		step, err := train.New(s, model.NewStore(), optimizer.Adam().Done(), c.Loss, train.Options{Precision: policy})
		require.NoError(t, err)
		compiled, err := step.Compiled(t.Context(), c.Windows())
		require.NoError(t, err)
		r, err := compiled.Report()
		require.NoError(t, err)
		assert.Equal(t, float64(3*2*(tokens*matrices+attention)), r.Cost.ModelFLOPs)
	}
}
