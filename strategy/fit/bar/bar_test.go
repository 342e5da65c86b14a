package bar

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/strategy/fit"
)

// at is a run at a step.
type at struct {
	step, steps int64
	metrics     []fit.Metric
}

func (a at) Step() int64            { return a.step }
func (a at) Steps() int64           { return a.steps }
func (a at) Rows() int64            { return 100 * a.step }
func (a at) Elapsed() time.Duration { return time.Duration(a.step) * time.Second }
func (a at) Metrics() []fit.Metric  { return a.metrics }

func TestABarFitsItsTerminal(t *testing.T) {
	metrics := []fit.Metric{{Name: "loss", Value: 0.25}, {Name: "held/loss", Value: 0.5}}
	for _, c := range []struct {
		width      int
		rate, held bool
	}{{narrow, false, false}, {wide - 1, false, false}, {wide, true, false}, {wide + 24, true, true}} {
		var drawn bytes.Buffer
		b := &display{w: &drawn, terminal: true, width: c.width}
		b.record(at{5, 10, metrics})
		b.record(at{10, 10, metrics})
		assert.Contains(t, drawn.String(), "loss 0.2500", c.width)
		assert.Equal(t, c.rate, strings.Contains(drawn.String(), "100 rows/s"), c.width)
		assert.Equal(t, c.held, strings.Contains(drawn.String(), "held/loss 0.5000"), c.width)
		assert.True(t, strings.HasSuffix(drawn.String(), "\n"), c.width)
		b.end()
	}
}

func TestWhatIsNoTerminalGetsLines(t *testing.T) {
	var drawn bytes.Buffer
	b := &display{w: &drawn}
	loss := []fit.Metric{{Name: "loss", Value: 1}}
	b.record(at{1, 40, loss})
	b.record(at{10, 40, loss}) // too soon after the line before
	b.record(at{20, 40, append(loss, fit.Metric{Name: "held/loss", Value: 2})})
	b.record(at{30, 40, loss})
	b.printed = b.printed.Add(-interval)
	b.record(at{35, 40, loss})
	b.record(at{40, 40, loss})
	b.end()
	assert.Equal(t, `step 1 of 40  loss 1.0000  100 rows/s
step 20 of 40  loss 1.0000  held/loss 2.0000  100 rows/s
step 35 of 40  loss 1.0000  held/loss 2.0000  100 rows/s
step 40 of 40  loss 1.0000  held/loss 2.0000  100 rows/s
`, drawn.String())

	drawn.Reset()
	b = &display{w: &drawn}
	b.record(at{3, 0, nil})
	assert.Equal(t, "step 3  100 rows/s\n", drawn.String())
	is, _ := terminal(&drawn)
	assert.False(t, is)
	file, err := os.CreateTemp(t.TempDir(), "log")
	require.NoError(t, err)
	defer file.Close()
	is, _ = terminal(file)
	assert.False(t, is)
}

func TestAMetricsNameDoesNotMoveTheCursor(t *testing.T) {
	var drawn bytes.Buffer
	b := &display{w: &drawn}
	b.record(at{1, 1, []fit.Metric{{Name: "a\x1b[2J\xff\n", Value: 1}}})
	assert.Contains(t, drawn.String(), "a\\u001b[2J\\xff  1.0000")
}
