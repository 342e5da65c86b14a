package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/sys/unix"

	"github.com/tpustrategy/tpustrategy/examples/digits/job"
)

// bar shows progress: a bar that redraws itself on a terminal, a line now and then elsewhere.
type bar struct {
	w        io.Writer
	terminal bool
	width    int // columns
	bar      *progressbar.ProgressBar
	printed  time.Time
	open     bool // the terminal's line is not ended
}

func newBar(w io.Writer) *bar {
	file, ok := w.(*os.File)
	if !ok {
		return &bar{w: w}
	}
	info, err := file.Stat()
	b := &bar{w: w, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, width: wide}
	if size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 {
		b.width = int(size.Col)
	}
	// A line that is longer than the terminal could not be drawn over.
	b.terminal = b.terminal && b.width >= narrow
	return b
}

// A terminal of wide columns has room for everything, one of fewer than narrow for no bar at all.
const wide, narrow = 80, 50

// interval is the time between two lines where there is no terminal.
const interval = 2 * time.Second

func (b *bar) update(p job.Progress) {
	text := fmt.Sprintf("loss %.4f  %6.0f examples/s", p.Loss, p.ExamplesPerSecond)
	if !b.terminal {
		if p.Step == 1 || p.Step == p.Steps || time.Since(b.printed) >= interval {
			b.printed = time.Now()
			fmt.Fprintf(b.w, "step %d of %d  %s\n", p.Step, p.Steps, text)
		}
		return
	}
	if b.bar == nil {
		b.bar = progressbar.NewOptions(p.Steps, progressbar.OptionSetWriter(b.w), progressbar.OptionShowCount(),
			progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetPredictTime(b.width >= wide), progressbar.OptionSetElapsedTime(b.width >= wide))
	}
	if b.width < wide {
		text = fmt.Sprintf("loss %.4f", p.Loss)
	}
	b.bar.Describe(text)
	// A bar that cannot be drawn is no reason to stop training.
	_ = b.bar.Set(p.Step)
	b.open = true
	if p.Step == p.Steps {
		b.end()
	}
}

// end leaves the bar as it is, and the cursor on a new line.
func (b *bar) end() {
	if b.open {
		_ = b.bar.Exit()
		fmt.Fprintln(b.w)
		b.open = false
	}
}
