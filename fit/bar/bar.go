package bar

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/fit"
	"github.com/tpustrategy/tpustrategy/fit/progress"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/plain"
)

// A line of at least wide columns shows everything. A line of fewer than narrow columns shows no
// bar.
const wideColumns, narrowColumns = 79, 49

// printInterval is the minimum time between two lines without a terminal. patience is the duration after
// which the bar shows the current activity of the run.
const printInterval, activityDelay = 2 * time.Second, 1500 * time.Millisecond

// New returns a hook that shows the progress of a run: the step, the latest metrics, the rows per
// second over all replicas since the first step, and the current activity if it takes long. If w is
// not a terminal, the hook writes a line for the first step, for the last step, for each
// evaluation, and otherwise at records that are at least 2 seconds after the previous line. With
// several processes only process 0 shows the progress.
//
// Write errors do not stop the run.
func New(w io.Writer) fit.Hook { return NewOnLine(progress.NewLine(w, progress.Options{})) }

// NewOnLine is like [New], but draws on an existing line, which can also show other texts, such as the
// progress of compilations.
func NewOnLine(line *progress.Line) fit.Hook {
	var b *display
	return fit.Hook{Name: "bar",
		Begin: func(_ context.Context, s *fit.State) error {
			b = &display{line: line, resumedFrom: s.ResumedFrom(), step: s.Step(), steps: s.TotalSteps(), startTime: time.Now()}
			if s.IsChief() {
				line.SetStatus(b.render)
			}
			return nil
		},
		Record: func(_ context.Context, s *fit.State) error {
			if s.IsChief() {
				b.update(s)
			}
			return nil
		},
		OnActivity: func(what watchdog.Activity, name string) {
			if b != nil {
				b.setActivity(what, name)
			}
		},
		End: func(_ context.Context, s *fit.State, _ error) error {
			if s.IsChief() {
				b.setActivity(watchdog.Setup, "")
				line.SetStatus(nil)
			}
			return nil
		},
	}
}

// display is the state of the hook.
type display struct {
	line      *progress.Line
	printTime time.Time // time of the last line without a terminal

	mu                 sync.Mutex
	resumedFrom, steps int64
	step               int64 // last launched step
	startTime          time.Time
	rate               float64 // rows per second
	latest             []fit.Metric
	minMetrics         int // number of metrics of a record without an evaluation
	activity           watchdog.Activity
	activityName       string
	activityStart      time.Time
}

// runState is the part of fit.State that a display uses.
type runState interface {
	Step() int64
	TotalSteps() int64
	Rows() int64
	Elapsed() time.Duration
	Metrics() []fit.Metric
}

func (b *display) update(s runState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range s.Metrics() {
		b.latest = setMetric(b.latest, m)
	}
	now := len(s.Metrics())
	if b.minMetrics == 0 {
		b.minMetrics = now
	}
	measured := now > b.minMetrics
	b.minMetrics = min(b.minMetrics, now)
	b.step, b.steps = s.Step(), s.TotalSteps()
	if took := s.Elapsed(); took > 0 {
		b.startTime, b.rate = time.Now().Add(-took), float64(s.Rows())/took.Seconds()
	}
	if !b.line.IsTerminal() && (b.printTime.IsZero() || measured || b.step == b.steps || time.Since(b.printTime) >= printInterval) {
		b.printTime = time.Now()
		of := ""
		if b.steps > 0 {
			of = fmt.Sprintf(" of %d", b.steps)
		}
		fmt.Fprintf(b.line, "step %d%s  %s\n", b.step, of, plain.EscapeLine(b.metricsText(len(b.latest), true)))
	}
}

// setActivity records the current activity of the run.
func (b *display) setActivity(what watchdog.Activity, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity, b.activityName, b.activityStart = what, name, time.Now()
	if what == watchdog.Launch {
		b.step++
	}
}

// render returns the line of a terminal.
func (b *display) render(width int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	most := 1
	if width >= wideColumns {
		most = 1 + (width-wideColumns)/24
	}
	var parts []string
	if waits := now.Sub(b.activityStart); waits >= activityDelay && !b.activityStart.IsZero() {
		what := cmp.Or(b.activityName, b.activity.String())
		if b.activity == watchdog.Result {
			what = "waiting for " + what
		}
		parts = append(parts, what+" "+formatSeconds(waits))
	} else if text := b.metricsText(most, width >= wideColumns); text != "" {
		parts = append(parts, text)
	}
	took := now.Sub(b.startTime)
	if b.steps == 0 {
		return strings.Join(append(parts, fmt.Sprintf("step %d", b.step), formatSeconds(took)), "  ")
	}
	done := min(b.step, b.steps)
	if width >= narrowColumns {
		const cells = 20
		full := int(done * cells / b.steps)
		parts = append(parts, fmt.Sprintf("%3d%% |%s%s|", done*100/b.steps, strings.Repeat("█", full), strings.Repeat(" ", cells-full)))
	}
	parts = append(parts, fmt.Sprintf("%d/%d", done, b.steps))
	if width >= wideColumns {
		left := ""
		if taken := done - b.resumedFrom; taken > 0 && done < b.steps {
			left = ", " + formatSeconds(took*time.Duration(b.steps-done)/time.Duration(taken)) + " left"
		}
		parts = append(parts, formatSeconds(took)+left)
	}
	return strings.Join(parts, "  ")
}

// metricsText returns the first metrics and the rate.
func (b *display) metricsText(most int, rate bool) string {
	var parts []string
	for _, m := range b.latest[:min(most, len(b.latest))] {
		parts = append(parts, fmt.Sprintf("%s %.4f", m.Name, m.Value))
	}
	if rate && b.rate > 0 {
		parts = append(parts, fmt.Sprintf("%.0f rows/s", b.rate))
	}
	return strings.Join(parts, "  ")
}

func setMetric(all []fit.Metric, m fit.Metric) []fit.Metric {
	for i := range all {
		if all[i].Name == m.Name {
			all[i] = m
			return all
		}
	}
	return append(all, m)
}

func formatSeconds(d time.Duration) string { return d.Round(time.Second).String() }
