package decoder_test

import (
	"testing"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/lm/decoder"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// TestPresetsHaveTheParametersOfTheirNames checks the numbers of parameters. The number of Llama 3
// 8B is published.
func TestPresetsHaveTheParametersOfTheirNames(t *testing.T) {
	for name, want := range map[string]int{"125m": 124_275_456, "1b3": 1_345_423_360, "llama3-8b": 8_030_261_248} {
		c, err := decoder.Preset(name)
		require.NoError(t, err)
		assert.Equal(t, want, c.Parameters(), name)
		assert.NoError(t, c.Validate(4, 4, 2), name)
	}
	tiny, err := decoder.Preset("tiny")
	require.NoError(t, err)
	assert.NoError(t, tiny.Validate(4, 2, 1))
}

func TestParametersAreThoseOfTheVariables(t *testing.T) {
	for _, size := range []int{0, 6} { // features of a head
		c := small()
		c.HeadSize = size
		store := model.NewStore()
		_, err := strategytest.OK(train.New(strategytest.New(t, 1, 1), store, optimizer.StochasticGradientDescent().Done(),
			c.Loss, train.Options{})).Lowered(t.Context(), c.BatchShape())
		require.NoError(t, err)
		n := 0
		for v := range store.IterVariables() {
			if v.Trainable {
				n += v.Shape().Size()
			}
		}
		assert.Equal(t, c.Parameters(), n)
	}
}

func TestSizesThatCannotBeAreErrors(t *testing.T) {
	_, err := decoder.Preset("gpt5")
	assert.EqualError(t, err, `gpt: no preset "gpt5"; there are tiny, 125m, 1b3, llama3-8b`)
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	for _, bad := range []struct {
		change                   func(c *decoder.Config)
		replicas, logical, parts int
		want                     string
	}{
		{func(c *decoder.Config) { c.Batch = 6 }, 4, 2, 1, "6 rows of a batch cannot be divided into 4 equal parts"},
		{func(c *decoder.Config) {}, 4, 2, 4, "8 rows of a batch cannot be divided into 16 equal parts"},
		{func(c *decoder.Config) { c.Batch = -8 }, 1, 1, 1, "-8 rows of a batch"},
		{func(c *decoder.Config) { c.Heads = 6 }, 1, 4, 1, "6 heads cannot be divided into 4 equal parts"},
		{func(c *decoder.Config) { c.KeyHeads = 2 }, 1, 4, 1, "2 heads of keys cannot"},
		{func(c *decoder.Config) { c.Hidden = 25 }, 1, 2, 1, "25 hidden features cannot"},
		{func(c *decoder.Config) { c.Vocabulary = 41 }, 1, 2, 1, "41 tokens of the vocabulary cannot"},
	} {
		c := small()
		bad.change(&c)
		err := c.Validate(bad.replicas, bad.logical, bad.parts)
		assert.ErrorContains(t, err, bad.want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}
