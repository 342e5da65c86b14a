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

// A line of wide columns has room for everything, one of fewer than narrow for no bar.
const wide, narrow = 79, 49

// interval is the time between two lines where there is no terminal, and patience how long the run is
// at something before the bar says what.
const interval, patience = 2 * time.Second, 1500 * time.Millisecond

// New returns a hook that shows the progress of a run: the step, the metrics as they were measured
// last, the rows of all replicas a second since the first step, and what the run is at if that takes
// long. On what is no terminal it writes a line for the first step, for the last, for
// each evaluation, and at least 2 seconds after the line before. With several processes the first one
// shows it.
//
// What cannot be written does not stop the run.
func New(w io.Writer) fit.Hook { return On(progress.To(w, progress.Options{})) }

// On is [New] on a line that shows other things, too, such as a program that is compiled.
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

// display is what is shown.
type display struct {
	line    *progress.Line
	printed time.Time // where there is no terminal

	mu             sync.Mutex
	resumed, steps int64
	step           int64 // that is launched
	began          time.Time
	rate           float64 // rows a second
	latest         []fit.Metric
	least          int // metrics of a record without an evaluation
	what           watchdog.Activity
	name           string
	since          time.Time
}

// run is what a display shows of a run.
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
		fmt.Fprintf(b.line, "step %d%s  %s\n", b.step, of, plain.Line(b.metrics(len(b.latest), true)))
	}
}

// doing notes what the run turns to.
func (b *display) doing(what watchdog.Activity, name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.what, b.name, b.since = what, name, time.Now()
	if what == watchdog.Launch {
		b.step++
	}
}

// text is the line of a terminal.
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

// metrics are the first metrics, and the rate.
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
