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
	"github.com/tpustrategy/tpustrategy/internal/units"
)

// A line of at least wideColumns columns shows all fields. A line of fewer than narrowColumns
// columns shows no bar.
const wideColumns, narrowColumns = 79, 49

// printInterval is the minimum time between two lines if the output is not a terminal.
// activityDelay is the time after which the bar shows the current activity, such as a save.
const printInterval, activityDelay = 2 * time.Second, 1500 * time.Millisecond

// New returns a hook that shows the progress of a run: the step, the latest metrics, the average
// number of rows per second over all replicas, and any activity that takes longer than 1.5 seconds.
// If w is not a terminal, the hook writes lines: for the first and the last step, for each
// evaluation, and otherwise at most every 2 seconds. With several processes, only process 0 shows
// progress. Write errors are ignored.
func New(w io.Writer) fit.Hook { return NewOnLine(progress.NewLine(w, progress.Options{})) }

// NewOnLine is like [New], but draws on an existing line. Other code can use the same line, for
// example to show the progress of compilations.
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
		OnActivity: func(kind watchdog.Activity, name string) {
			if b != nil {
				b.setActivity(kind, name)
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
	count := len(s.Metrics())
	if b.minMetrics == 0 {
		b.minMetrics = count
	}
	measured := count > b.minMetrics
	b.minMetrics = min(b.minMetrics, count)
	b.step, b.steps = s.Step(), s.TotalSteps()
	if elapsed := s.Elapsed(); elapsed > 0 {
		b.startTime, b.rate = time.Now().Add(-elapsed), float64(s.Rows())/elapsed.Seconds()
	}
	if !b.line.IsTerminal() && (b.printTime.IsZero() || measured || b.step == b.steps ||
		time.Since(b.printTime) >= printInterval) {
		b.printTime = time.Now()
		total := ""
		if b.steps > 0 {
			total = fmt.Sprintf(" of %d", b.steps)
		}
		fmt.Fprintf(b.line, "step %d%s  %s\n", b.step, total, plain.EscapeLine(b.metricsText(len(b.latest), true)))
	}
}

// setActivity sets the activity that the bar displays. At the launch of a step, it also increments
// the displayed step number.
func (b *display) setActivity(kind watchdog.Activity, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity, b.activityName, b.activityStart = kind, name, time.Now()
	if kind == watchdog.Launch {
		b.step++
	}
}

// render formats the terminal's line for a terminal of width columns.
func (b *display) render(width int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	maxMetrics := 1
	if width >= wideColumns {
		maxMetrics = 1 + (width-wideColumns)/24
	}
	var fields []string
	if waited := now.Sub(b.activityStart); waited >= activityDelay && !b.activityStart.IsZero() {
		activity := cmp.Or(b.activityName, b.activity.String())
		if b.activity == watchdog.Result {
			activity = "waiting for " + activity
		}
		fields = append(fields, activity+" "+units.Duration(waited))
	} else if text := b.metricsText(maxMetrics, width >= wideColumns); text != "" {
		fields = append(fields, text)
	}
	elapsed := now.Sub(b.startTime)
	if b.steps == 0 {
		return strings.Join(append(fields, fmt.Sprintf("step %d", b.step), units.Duration(elapsed)), "  ")
	}
	done := min(b.step, b.steps)
	if width >= narrowColumns {
		const cells = 20
		full := int(done * cells / b.steps)
		fields = append(fields, fmt.Sprintf("%3d%% |%s%s|", done*100/b.steps, strings.Repeat("█", full),
			strings.Repeat(" ", cells-full)))
	}
	fields = append(fields, fmt.Sprintf("%d/%d", done, b.steps))
	if width >= wideColumns {
		remaining := ""
		if newSteps := done - b.resumedFrom; newSteps > 0 && done < b.steps {
			remaining = ", " + units.Duration(elapsed*time.Duration(b.steps-done)/time.Duration(newSteps)) + " left"
		}
		fields = append(fields, units.Duration(elapsed)+remaining)
	}
	return strings.Join(fields, "  ")
}

// metricsText formats up to limit metrics and, if rate is set, the rows per second.
func (b *display) metricsText(limit int, rate bool) string {
	var fields []string
	for _, m := range b.latest[:min(limit, len(b.latest))] {
		fields = append(fields, fmt.Sprintf("%s %.4f", m.Name, m.Value))
	}
	if rate && b.rate > 0 {
		fields = append(fields, fmt.Sprintf("%.0f rows/s", b.rate))
	}
	return strings.Join(fields, "  ")
}

func setMetric(metrics []fit.Metric, m fit.Metric) []fit.Metric {
	for i := range metrics {
		if metrics[i].Name == m.Name {
			metrics[i] = m
			return metrics
		}
	}
	return append(metrics, m)
}
