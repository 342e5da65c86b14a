package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestLinesAddUp(t *testing.T) {
	r := sample()
	lines := r.sumLines()
	assert.Len(t, lines, 3)
	net := lines[0]
	assert.Equal(t, "model/net.go:41", net.String())
	assert.InDelta(t, 0.032, net.Seconds(), 1e-12)
	assert.Equal(t, int64(5<<30), net.PeakBytes)
	assert.Equal(t, "up", net.Layer)
	assert.Empty(t, net.Pass, "forward and backward")
	assert.Equal(t, "main.go:12", lines[1].String())
	assert.Equal(t, "not known", lines[2].String())
	all := 0.0
	for _, l := range r.Lines {
		all += l.Seconds()
	}
	assert.InDelta(t, r.Predicted.Seconds, all, 1e-12)
	assert.Equal(t, sample(), r, "the report is as it was")
}
