package bar

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// at is the state of a run at a step.
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
	synctest.Test(t, func(t *testing.T) {
		b := &display{line: progress.To(&bytes.Buffer{}, progress.Options{}), steps: 20, began: time.Now()}
		assert.Equal(t, "  0% |                    |  0/20  0s", b.text(79), "before the first step")
		b.record(at{5, 20, []fit.Metric{{Name: "loss", Value: 0.25}, {Name: "held/loss", Value: 0.5}}})
		for width, want := range map[int]string{
			48:  "loss 0.2500  5/20",
			49:  "loss 0.2500   25% |█████               |  5/20",
			78:  "loss 0.2500   25% |█████               |  5/20",
			79:  "loss 0.2500  100 rows/s   25% |█████               |  5/20  5s, 15s left",
			103: "loss 0.2500  held/loss 0.5000  100 rows/s   25% |█████               |  5/20  5s, 15s left",
		} {
			assert.Equal(t, want, b.text(width), width)
		}
	})
}

// TestABarIsNeverStill checks that between records the bar counts the launched steps and the
// seconds, shows activities that take long, and shows no estimate that has passed.
func TestABarIsNeverStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &display{line: progress.To(&bytes.Buffer{}, progress.Options{}), step: 100, resumed: 100, steps: 200, began: time.Now()}
		b.record(at{100, 200, []fit.Metric{{Name: "loss", Value: 1}}})
		b.began = time.Now()
		before := ""
		for range 10 {
			b.doing(watchdog.Launch, "")
			time.Sleep(time.Second)
			assert.NotEqual(t, before, b.text(79))
			before = b.text(79)
		}
		assert.Equal(t, "loss 1.0000  100 rows/s   55% |███████████         |  110/200  10s, 1m30s left", before)
		time.Sleep(time.Second)
		assert.Contains(t, b.text(49), "launch 2s ")
		b.doing(watchdog.Hook, "evaluate held")
		assert.Contains(t, b.text(49), "loss 1.0000")
		for range 100 {
			time.Sleep(time.Second)
			assert.NotEqual(t, before, b.text(49))
			before = b.text(49)
		}
		assert.Equal(t, "evaluate held 1m40s   55% |███████████         |  110/200", before)
		assert.True(t, strings.HasSuffix(b.text(79), "1m51s, 16m39s left"), "the rate of the steps so far")
	})
}

func TestWhatIsNoTerminalGetsLines(t *testing.T) {
	var drawn bytes.Buffer
	b := &display{line: progress.To(&drawn, progress.Options{})}
	loss := []fit.Metric{{Name: "loss", Value: 1}}
	b.record(at{1, 40, loss})
	b.record(at{10, 40, loss}) // too soon after the previous line
	b.record(at{20, 40, append(loss, fit.Metric{Name: "held/loss", Value: 2})})
	b.record(at{30, 40, loss})
	b.printed = b.printed.Add(-interval)
	b.record(at{35, 40, loss})
	b.record(at{40, 40, loss})
	assert.Equal(t, `step 1 of 40  loss 1.0000  100 rows/s
step 20 of 40  loss 1.0000  held/loss 2.0000  100 rows/s
step 35 of 40  loss 1.0000  held/loss 2.0000  100 rows/s
step 40 of 40  loss 1.0000  held/loss 2.0000  100 rows/s
`, drawn.String())

	drawn.Reset()
	b = &display{line: progress.To(&drawn, progress.Options{})}
	b.record(at{3, 0, nil})
	assert.Equal(t, "step 3  100 rows/s\n", drawn.String())
	assert.Equal(t, "step 3  3s", strings.TrimSpace(b.text(40)))
}

func TestAMetricsNameDoesNotMoveTheCursor(t *testing.T) {
	var drawn bytes.Buffer
	b := &display{line: progress.To(&drawn, progress.Options{})}
	b.record(at{1, 1, []fit.Metric{{Name: "a\x1b[2J\xff\n", Value: 1}}})
	assert.Contains(t, drawn.String(), "a\\u001b[2J\\xff  1.0000")
}
