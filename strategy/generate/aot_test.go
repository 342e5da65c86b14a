package generate_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/internal/transformer"
	"github.com/tpustrategy/tpustrategy/strategy/generate"
)

// TestGeneratorsCompileForASlice compiles for a slice that is not here, and finds the cache in the
// reports.
func TestGeneratorsCompileForASlice(t *testing.T) {
	c := transformer.Peer()
	c.Loop = true
	s := strategytest.Ahead(t, "v5e:4x4", c.Options(0, 4))
	o := c.Generator()
	o.Batch = 32
	g, err := generate.New(s, seeded(), c.Logits, o)
	require.NoError(t, err)
	defer g.Close()
	x, err := g.Compiled(t.Context(), generate.Sampling{Temperature: 1, TopK: 10, TopP: 0.9})
	require.NoError(t, err)
	p, err := x.Prompts.Report()
	require.NoError(t, err)
	tk, err := x.Tokens.Report()
	require.NoError(t, err)
	t.Log(p)
	t.Log(tk)
	assert.NotNil(t, p)
}
