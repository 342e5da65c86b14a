package transformer_test

import (
	"strings"
	"testing"

	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/internal/test/transformer"
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report"
)

// explained checks a report's source lines against its totals. The lines must account for at least
// 95 percent of time and memory.
func explained(t *testing.T, r *report.Report) {
	t.Helper()
	var seconds, known float64
	var bytes, knownBytes, moved, all int64
	for _, l := range r.Lines {
		seconds, bytes = seconds+l.Seconds(), bytes+l.PeakBytes
		if l.File != "" {
			assert.Positive(t, l.Line, l.File)
			assert.NotEqual(t, "/", l.File[:1], "no path of a machine")
			known, knownBytes = known+l.Seconds(), knownBytes+l.PeakBytes
		}
		for _, c := range l.Collectives {
			if moved += c.Bytes; l.File == "" {
				t.Errorf("%s over %s of %d bytes comes from nowhere", c.Kind, c.Axis, c.Bytes)
			}
		}
	}
	for _, c := range r.Collectives {
		all += c.Bytes
	}
	require.NotNil(t, r.Schedule)
	assert.Equal(t, r.Schedule.Peak, bytes)
	assert.InDelta(t, all, moved, float64(len(r.Lines)), "shares are rounded")
	assert.GreaterOrEqual(t, float64(knownBytes), 0.95*float64(bytes))
	if r.Predicted != nil {
		assert.InEpsilon(t, r.Predicted.Seconds, seconds, 1e-6)
		assert.GreaterOrEqual(t, known, 0.95*seconds)
		t.Logf("%.2f %% of %s and %.2f %% of %s have a line", 100*known/seconds, units.Seconds(seconds),
			100*float64(knownBytes)/float64(bytes), units.Bytes(bytes))
	}
}

func TestLinesOfAStepExplainIt(t *testing.T) {
	c := transformer.Tiny()
	c.Loop = true
	if plugintest.InChild(t) {
		if plugintest.TPUChild(t) {
			explained(t, compiled(t, "v5e:2x2", c, 2))
		}
		return
	}
	x, err := c.Step(strategytest.New(t, 2, 2, c.Options(2, 2)), model.NewStore()).Compiled(t.Context(), c.TokensShape())
	require.NoError(t, err)
	r, err := report.Of(x)
	require.NoError(t, err)
	explained(t, r)
	var text strings.Builder
	require.NoError(t, r.WriteText(&text))
	assert.Contains(t, text.String(), "by line of Go")
	assert.Contains(t, text.String(), "transformer/decoder.go:")
	plugintest.TPUChild(t)
}
