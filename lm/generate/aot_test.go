package generate_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/lm/generate"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
)

func TestGeneratorsCompileForASlice(t *testing.T) {
	compilesForASlice(t, llama())
}

func TestAOTLargeGeneratorsCompileForASlice(t *testing.T) {
	plugintest.Large(t)
	compilesForASlice(t, transformer.Billion())
}

// compilesForASlice compiles a generator for a slice, and checks that the reports contain the
// cache.
func compilesForASlice(t *testing.T, c transformer.Config) {
	if !plugintest.TPUChild(t) {
		return
	}
	c.Loop = true
	s := strategytest.Ahead(t, "v5e:4x4", c.Options(0, 4))
	o := c.Generator()
	o.BatchSize = 32
	g, err := generate.New(s, seeded(), c.Logits, o)
	require.NoError(t, err)
	defer g.Close()
	x, err := g.Compiled(t.Context(), generate.Sampling{Temperature: 1, TopK: 10, TopP: 0.9})
	require.NoError(t, err)
	slots := c.Sequence + min(64, c.Sequence)
	// 8 rows, a quarter of the heads
	want := int64(2 * o.Layers * 8 * o.KeyHeads / 4 * slots * o.HeadSize * o.DType.Size())
	for _, c := range []*strategy.CompiledStep{x.Prefill, x.Decode} {
		r, err := report.Of(c)
		require.NoError(t, err)
		cache := int64(0)
		for _, a := range r.Tensors {
			if a.Role == "variable" && (a.Name == "generate/keys" || a.Name == "generate/values") {
				cache += a.BytesPerCore
				assert.True(t, a.Donated, "%s is updated in place", a.Name)
			}
		}
		assert.Equal(t, want, cache)
		assert.Equal(t, report.Fits, r.Memory.Verdict)
		t.Logf("%s: cache %d, arguments %d, temporaries %d bytes", r.Step, cache, r.Memory.Arguments, r.Memory.Temporaries)
	}
	_, err = g.Generate(t.Context(), prompts, generate.Sampling{MaxTokens: 1})
	require.ErrorIs(t, err, strategy.ErrAheadOfTime)
}
