package bar

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/tpustrategy/tpustrategy/internal/plain"
	"github.com/tpustrategy/tpustrategy/strategy/fit"
	"github.com/tpustrategy/tpustrategy/strategy/watchdog"
)

// A terminal of wide columns has room for everything, one of fewer than narrow for no bar at all.
const wide, narrow = 80, 50

// interval is the time between two lines where there is no terminal.
const interval = 2 * time.Second

// New returns a hook that shows the progress of a run: the step, the metrics as they were measured
// last, and the rows of all replicas a second since the first step. It is redrawn at each record;
// on what is no terminal it writes a line for the first step, for the last, for each evaluation,
// and at least 2 seconds after the line before. With several processes the first one shows it.
//
// What cannot be written does not stop the run.
func New(w io.Writer) fit.Hook {
	b := &display{w: w}
	return fit.Hook{Name: "bar",
		Begin: func(_ context.Context, s *fit.State) error {
			*b = display{w: w}
			b.terminal, b.width = terminal(w)
			return nil
		},
		Record: func(_ context.Context, s *fit.State) error {
			if s.First() {
				b.record(s)
			}
			return nil
		},
		Doing: func(what watchdog.Activity, name string) {
			if b.open && what == watchdog.Hook && strings.HasPrefix(name, "evaluate ") { // which may take long
				b.bar.Describe(plain.Line(name))
			}
		},
		End: func(_ context.Context, s *fit.State, _ error) error {
			b.end()
			return nil
		},
	}
}

// display is what is shown.
type display struct {
	w        io.Writer
	terminal bool
	width    int // columns
	bar      *progressbar.ProgressBar
	printed  time.Time
	open     bool // the terminal's line is not ended
	latest   []fit.Metric
	least    int // metrics of a record without an evaluation
}

// progress is what a display shows of a run.
type progress interface {
	Step() int64
	Steps() int64
	Rows() int64
	Elapsed() time.Duration
	Metrics() []fit.Metric
}

func (b *display) record(s progress) {
	for _, m := range s.Metrics() {
		b.latest = set(b.latest, m)
	}
	first, now := b.printed.IsZero(), len(s.Metrics())
	if first {
		b.least = now
	}
	measured := now > b.least
	b.least = min(b.least, now)
	last := s.Step() == s.Steps()
	if !b.terminal {
		if first || last || measured || time.Since(b.printed) >= interval {
			b.printed = time.Now()
			fmt.Fprintf(b.w, "%s  %s\n", steps(s), b.text(s, len(b.latest)))
		}
		return
	}
	b.printed = time.Now()
	if b.bar == nil {
		total := s.Steps()
		if total == 0 {
			total = -1 // a bar that goes round
		}
		b.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(b.w), progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(20), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetPredictTime(b.width >= wide), progressbar.OptionSetElapsedTime(b.width >= wide))
	}
	most := 1
	if b.width >= wide {
		most = 1 + (b.width-wide)/24
	}
	b.bar.Describe(b.text(s, most))
	_ = b.bar.Set64(s.Step())
	b.open = true
	if last {
		b.end()
	}
}

// text is the first metrics, as many as there is room for, and the rate.
func (b *display) text(s progress, most int) string {
	var parts []string
	for _, m := range b.latest[:min(most, len(b.latest))] {
		parts = append(parts, fmt.Sprintf("%s %.4f", plain.Line(m.Name), m.Value))
	}
	if seconds := s.Elapsed().Seconds(); seconds > 0 && s.Rows() > 0 && (!b.terminal || b.width >= wide) {
		parts = append(parts, fmt.Sprintf("%.0f rows/s", float64(s.Rows())/seconds))
	}
	return strings.Join(parts, "  ")
}

// steps says how far a run is.
func steps(s progress) string {
	if s.Steps() == 0 {
		return fmt.Sprintf("step %d", s.Step())
	}
	return fmt.Sprintf("step %d of %d", s.Step(), s.Steps())
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

// end leaves the bar as it is, and the cursor on a new line.
func (b *display) end() {
	if b.open {
		_ = b.bar.Exit()
		fmt.Fprintln(b.w)
		b.open = false
	}
}

// terminal reports whether w is a terminal that is wide enough for a bar, and its columns.
func terminal(w io.Writer) (bool, int) {
	file, ok := w.(*os.File)
	if !ok {
		return false, wide
	}
	info, err := file.Stat()
	columns := columnsOf(file)
	if columns == 0 {
		columns = wide
	}
	// A line that is longer than the terminal could not be drawn over.
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && columns >= narrow, columns
}
