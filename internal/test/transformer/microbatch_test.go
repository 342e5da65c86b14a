package transformer_test

import (
	"testing"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// TestMicrobatchesNeedTheMemoryOfOne checks that a step with 8 microbatches uses the temporaries of
// one microbatch and one set of gradients.
func TestMicrobatchesNeedTheMemoryOfOne(t *testing.T) {
	s := strategytest.New(t, 1, 1)
	temporaries := func(c transformer.Config, n int) int64 {
		step := strategytest.OK(train.New(s, model.NewStore(), optimizer.Adam().Done(), c.Loss, train.Options{Accumulate: n}))
		x, err := step.Compiled(t.Context(), c.TokensShape())
		require.NoError(t, err)
		r, err := report.Of(x)
		require.NoError(t, err)
		return r.Memory.Temporaries
	}
	c := transformer.Config{Layers: 1, Width: 128, Heads: 8, Sequence: 128, Vocabulary: 256, Batch: 64}
	gradients := int64(c.Parameters()) * 4
	batch, accumulated := temporaries(c, 0), temporaries(c, 8)
	c.Batch /= 8
	eighth := temporaries(c, 0)
	t.Logf("KiB of temporaries: %d of the batch, %d of an eighth, %d of 8 microbatches; %d of gradients", batch>>10,
		eighth>>10, accumulated>>10, gradients>>10)
	assert.Less(t, accumulated, eighth+gradients*5/4)
	assert.Less(t, accumulated, batch/4)
}
