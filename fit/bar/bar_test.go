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
func (a at) TotalSteps() int64      { return a.steps }
func (a at) Rows() int64            { return 100 * a.step }
func (a at) Elapsed() time.Duration { return time.Duration(a.step) * time.Second }
func (a at) Metrics() []fit.Metric  { return a.metrics }

func TestABarFitsItsTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &display{line: progress.NewLine(&bytes.Buffer{}, progress.Options{}), steps: 20, startTime: time.Now()}
		assert.Equal(t, "  0% |                    |  0/20  0s", b.render(79), "before the first step")
		b.update(at{5, 20, []fit.Metric{{Name: "loss", Value: 0.25}, {Name: "held/loss", Value: 0.5}}})
		for width, want := range map[int]string{
			48:  "loss 0.2500  5/20",
			49:  "loss 0.2500   25% |█████               |  5/20",
			78:  "loss 0.2500   25% |█████               |  5/20",
			79:  "loss 0.2500  100 rows/s   25% |█████               |  5/20  5s, 15s left",
			103: "loss 0.2500  held/loss 0.5000  100 rows/s   25% |█████               |  5/20  5s, 15s left",
		} {
			assert.Equal(t, want, b.render(width), width)
		}
	})
}

// TestABarIsNeverStill checks that between records the bar counts the launched steps and the
// seconds, shows activities that take long, and shows no estimate that has passed.
func TestABarIsNeverStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &display{line: progress.NewLine(&bytes.Buffer{}, progress.Options{}), step: 100, resumedFrom: 100, steps: 200,
			startTime: time.Now()}
		b.update(at{100, 200, []fit.Metric{{Name: "loss", Value: 1}}})
		b.startTime = time.Now()
		before := ""
		for range 10 {
			b.setActivity(watchdog.Launch, "")
			time.Sleep(time.Second)
			assert.NotEqual(t, before, b.render(79))
			before = b.render(79)
		}
		assert.Equal(t,
			"loss 1.0000  100 rows/s   55% |███████████         |  110/200  10s, 1m30s left", before)
		time.Sleep(time.Second)
		assert.Contains(t, b.render(49), "launch 2s ")
		b.setActivity(watchdog.Hook, "evaluate held")
		assert.Contains(t, b.render(49), "loss 1.0000")
		for range 100 {
			time.Sleep(time.Second)
			assert.NotEqual(t, before, b.render(49))
			before = b.render(49)
		}
		assert.Equal(t, "evaluate held 1m40s   55% |███████████         |  110/200", before)
		assert.True(t, strings.HasSuffix(b.render(79), "1m51s, 16m39s left"), "the rate of the steps so far")
	})
}

func TestWhatIsNoTerminalGetsLines(t *testing.T) {
	var drawn bytes.Buffer
	b := &display{line: progress.NewLine(&drawn, progress.Options{})}
	loss := []fit.Metric{{Name: "loss", Value: 1}}
	b.update(at{1, 40, loss})
	b.update(at{10, 40, loss}) // too soon after the previous line
	b.update(at{20, 40, append(loss, fit.Metric{Name: "held/loss", Value: 2})})
	b.update(at{30, 40, loss})
	b.printTime = b.printTime.Add(-printInterval)
	b.update(at{35, 40, loss})
	b.update(at{40, 40, loss})
	assert.Equal(t, `step 1 of 40  loss 1.0000  100 rows/s
step 20 of 40  loss 1.0000  held/loss 2.0000  100 rows/s
step 35 of 40  loss 1.0000  held/loss 2.0000  100 rows/s
step 40 of 40  loss 1.0000  held/loss 2.0000  100 rows/s
`, drawn.String())

	drawn.Reset()
	b = &display{line: progress.NewLine(&drawn, progress.Options{})}
	b.update(at{3, 0, nil})
	assert.Equal(t, "step 3  100 rows/s\n", drawn.String())
	assert.Equal(t, "step 3  3s", strings.TrimSpace(b.render(40)))
}

func TestAMetricsNameDoesNotMoveTheCursor(t *testing.T) {
	var drawn bytes.Buffer
	b := &display{line: progress.NewLine(&drawn, progress.Options{})}
	b.update(at{1, 1, []fit.Metric{{Name: "a\x1b[2J\xff\n", Value: 1}}})
	assert.Contains(t, drawn.String(), "a\\u001b[2J\\xff  1.0000")
}
