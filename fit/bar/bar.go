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
const wide, narrow = 79, 49

// interval is the minimum time between two lines without a terminal. patience is the duration after
// which the bar shows the current activity of the run.
const interval, patience = 2 * time.Second, 1500 * time.Millisecond

// New returns a hook that shows the progress of a run: the step, the latest metrics, the rows per
// second over all replicas since the first step, and the current activity if it takes long. If w is
// not a terminal, the hook writes a line for the first step, for the last step, for each
// evaluation, and otherwise at records that are at least 2 seconds after the previous line. With
// several processes only process 0 shows the progress.
//
// Write errors do not stop the run.
func New(w io.Writer) fit.Hook { return On(progress.To(w, progress.Options{})) }

// On is like [New], but draws on an existing line, which can also show other texts, such as the
// progress of compilations.
func On(line *progress.Line) fit.Hook {
	var b *display
	return fit.Hook{Name: "bar",
		Begin: func(_ context.Context, s *fit.State) error {
			b = &display{line: line, resumed: s.Resumed(), step: s.Step(), steps: s.Steps(), began: time.Now()}
			if s.First() {
				line.Status(b.text)
			}
			return nil
		},
		Record: func(_ context.Context, s *fit.State) error {
			if s.First() {
				b.record(s)
			}
			return nil
		},
		Doing: func(what watchdog.Activity, name string) {
			if b != nil {
				b.doing(what, name)
			}
		},
		End: func(_ context.Context, s *fit.State, _ error) error {
			if s.First() {
				b.doing(watchdog.Setup, "")
				line.Status(nil)
			}
			return nil
		},
	}
}

// display is the state of the hook.
type display struct {
	line    *progress.Line
	printed time.Time // time of the last line without a terminal

	mu             sync.Mutex
	resumed, steps int64
	step           int64 // last launched step
	began          time.Time
	rate           float64 // rows per second
	latest         []fit.Metric
	least          int // number of metrics of a record without an evaluation
	what           watchdog.Activity
	name           string
	since          time.Time
}

// run is the part of fit.State that a display uses.
type run interface {
	Step() int64
	Steps() int64
	Rows() int64
	Elapsed() time.Duration
	Metrics() []fit.Metric
}

func (b *display) record(s run) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range s.Metrics() {
		b.latest = set(b.latest, m)
	}
	now := len(s.Metrics())
	if b.least == 0 {
		b.least = now
	}
	measured := now > b.least
	b.least = min(b.least, now)
	b.step, b.steps = s.Step(), s.Steps()
	if took := s.Elapsed(); took > 0 {
		b.began, b.rate = time.Now().Add(-took), float64(s.Rows())/took.Seconds()
	}
	if !b.line.Terminal() && (b.printed.IsZero() || measured || b.step == b.steps || time.Since(b.printed) >= interval) {
		b.printed = time.Now()
		of := ""
		if b.steps > 0 {
			of = fmt.Sprintf(" of %d", b.steps)
		}
		fmt.Fprintf(b.line, "step %d%s  %s\n", b.step, of, plain.EscapeLine(b.metrics(len(b.latest), true)))
	}
}

// doing records the current activity of the run.
func (b *display) doing(what watchdog.Activity, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.what, b.name, b.since = what, name, time.Now()
	if what == watchdog.Launch {
		b.step++
	}
}

// text returns the line of a terminal.
func (b *display) text(width int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	most := 1
	if width >= wide {
		most = 1 + (width-wide)/24
	}
	var parts []string
	if waits := now.Sub(b.since); waits >= patience && !b.since.IsZero() {
		what := cmp.Or(b.name, b.what.String())
		if b.what == watchdog.Result {
			what = "waiting for " + what
		}
		parts = append(parts, what+" "+seconds(waits))
	} else if text := b.metrics(most, width >= wide); text != "" {
		parts = append(parts, text)
	}
	took := now.Sub(b.began)
	if b.steps == 0 {
		return strings.Join(append(parts, fmt.Sprintf("step %d", b.step), seconds(took)), "  ")
	}
	done := min(b.step, b.steps)
	if width >= narrow {
		const cells = 20
		full := int(done * cells / b.steps)
		parts = append(parts, fmt.Sprintf("%3d%% |%s%s|", done*100/b.steps, strings.Repeat("█", full), strings.Repeat(" ", cells-full)))
	}
	parts = append(parts, fmt.Sprintf("%d/%d", done, b.steps))
	if width >= wide {
		left := ""
		if taken := done - b.resumed; taken > 0 && done < b.steps {
			left = ", " + seconds(took*time.Duration(b.steps-done)/time.Duration(taken)) + " left"
		}
		parts = append(parts, seconds(took)+left)
	}
	return strings.Join(parts, "  ")
}

// metrics returns the first metrics and the rate.
func (b *display) metrics(most int, rate bool) string {
	var parts []string
	for _, m := range b.latest[:min(most, len(b.latest))] {
		parts = append(parts, fmt.Sprintf("%s %.4f", m.Name, m.Value))
	}
	if rate && b.rate > 0 {
		parts = append(parts, fmt.Sprintf("%.0f rows/s", b.rate))
	}
	return strings.Join(parts, "  ")
}

func set(all []fit.Metric, m fit.Metric) []fit.Metric {
	for i := range all {
		if all[i].Name == m.Name {
			all[i] = m
			return all
		}
	}
	return append(all, m)
}

func seconds(d time.Duration) string { return d.Round(time.Second).String() }
