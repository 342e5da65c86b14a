package progress

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/tpustrategy/tpustrategy/internal/plain"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/report/phase"
)

// Options configure a [Line]. The zero value works.
type Options struct {
	// Prefix is printed at the start of each line, for example "program: ".
	Prefix string
	// Record is the file with the durations of earlier compilations; empty means none. [RecordFile]
	// returns the file that programs share.
	Record string
	// Every is the interval between two lines if w is not a terminal; 0 means 10 seconds.
	Every time.Duration
}

// Line shows the programs that are compiled. On a terminal without a compilation it shows the text
// of [Line.Say] and [Line.Status]. It is safe for concurrent use.
type Line struct {
	w    io.Writer
	opts Options
	// width returns the number of columns of the terminal; it is nil if w is not a terminal.
	width func() int
	// processor returns the processor time of a process, or 0 if it is not known.
	processor func(pid int) time.Duration

	mu    sync.Mutex
	under []*program // current compilations, the newest last
	pid   int        // process ID of the compiler; 0 means this process
	said  string     // text of Say on a terminal, since began
	began time.Time
	state func(width int) string // function of Status
	doing string                 // first word of the last text of Now, at time spoke
	spoke time.Time
	drawn bool   // there is text on the terminal's line
	stop  func() // stops the drawing goroutine; nil if it does not run
}

// program is a program that is being compiled.
type program struct {
	phase.Phase
	since time.Time // start of the stage
	known estimate
	told  bool // the message about the unknown end was shown
	// The compiler's process when the line was first shown, the time, and the processor time of the
	// process.
	pid  int
	at   time.Time
	used time.Duration
}

// patience is the delay before a terminal's line appears, and redraw is the interval between
// redraws.
const (
	patience = 300 * time.Millisecond
	redraw   = 200 * time.Millisecond
)

// To returns a line that writes to w. If w is a terminal, the line is redrawn in place.
func To(w io.Writer, o Options) *Line {
	l := &Line{w: w, opts: o, processor: processorOf}
	if o.Every <= 0 {
		l.opts.Every = 10 * time.Second
	}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		l.width = func() int {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width < 20 {
				return 80
			}
			return width
		}
	}
	return l
}

// Phase records the stage of a compilation. It is intended for strategy.Options.Phases and for
// other code that compiles. It does not block, except for the short time of reading or writing the
// record of a compilation.
func (l *Line) Phase(p phase.Phase) {
	now := time.Now()
	var like estimate
	if p.Stage == phase.Compiling {
		like = knownOf(l.opts.Record, p)
	}
	took, of := l.note(p, now, like)
	if p.Stage == phase.Done && p.Err == nil && of.Stage == phase.Compiling {
		remember(l.opts.Record, of, took)
	}
}

// note updates the stage of a program and returns the previous stage with its duration.
func (l *Line) note(p phase.Phase, now time.Time, like estimate) (took time.Duration, of phase.Phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.under, func(m *program) bool { return m.Name == p.Name && m.Target == p.Target })
	if i >= 0 {
		took, of = now.Sub(l.under[i].since), l.under[i].Phase
	}
	switch {
	case p.Stage != phase.Done && i < 0:
		l.settle(now)
		l.under = append(l.under, &program{Phase: p, since: now, known: like})
		l.start()
	case p.Stage != phase.Done:
		*l.under[i] = program{Phase: p, since: now, known: like}
	case i >= 0:
		l.under = slices.Delete(l.under, i, i+1)
		l.end()
	}
	return took, of
}

// Process sets the process whose memory the line shows, for a compiler in another process. 0 means
// this process. -1 means unknown: the line shows no memory.
func (l *Line) Process(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pid = pid
}

// Close erases the line and forgets all compilations. The line can be used again.
func (l *Line) Close() {
	if l == nil || l.w == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(time.Now())
	l.under, l.state = nil, nil
	l.end()
}

// start starts the drawing goroutine.
func (l *Line) start() {
	if l.stop == nil {
		l.stop = l.draw()
	}
}

func (l *Line) end() {
	if len(l.under) > 0 {
		return
	}
	l.wipe()
	if l.stop != nil && l.said == "" && l.state == nil {
		l.stop()
		l.stop = nil
	}
}

func (l *Line) wipe() {
	if l.drawn {
		_, _ = io.WriteString(l.w, "\r\x1b[K")
		l.drawn = false
	}
}

// draw starts a goroutine that draws the line until stop is called.
func (l *Line) draw() (stop func()) {
	done := make(chan struct{})
	first, next := l.opts.Every, l.opts.Every
	if l.width != nil {
		first, next = patience, redraw
	}
	go func() {
		timer := time.NewTimer(first)
		defer timer.Stop()
		for {
			select {
			case <-done:
				return
			case <-timer.C:
			}
			l.mu.Lock()
			select {
			case <-done: // the line was erased or belongs to another goroutine
			default:
				l.show(time.Now())
			}
			l.mu.Unlock()
			timer.Reset(next)
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

func (l *Line) show(now time.Time) {
	var text string
	switch {
	case len(l.under) > 0:
		text = l.program(now)
	case l.said != "":
		text = l.work(now)
	default:
		text = l.state(l.width() - 1)
	}
	if l.width == nil {
		l.leave(text)
		return
	}
	fmt.Fprintf(l.w, "\r\x1b[K%s", l.cut(text))
	l.drawn = true
}

// leave writes a line that is not overwritten.
func (l *Line) leave(text string) {
	l.wipe()
	fmt.Fprintln(l.w, l.cut(text))
}

// cut truncates a text to one line of the terminal.
func (l *Line) cut(text string) string {
	text = plain.EscapeLine(text)
	if l.width != nil {
		if r, width := []rune(text), l.width()-1; len(r) > width { // the last column would wrap
			return string(r[:width])
		}
	}
	return text
}

// program returns the line of the newest program. When the end of the compilation is no longer
// known, it prints a message above the line once.
func (l *Line) program(now time.Time) string {
	m := l.under[len(l.under)-1]
	passed := now.Sub(m.since)
	if m.pid != l.pid || m.at.IsZero() {
		m.pid, m.at, m.used = l.pid, now, l.processor(l.pid)
	}
	if m.Stage == phase.Compiling && m.known.over(passed) && passed > unguided && !m.told {
		m.told = true
		l.wipe()
		fmt.Fprintln(l.w, plain.EscapeLine(l.opts.Prefix+m.advice(l.share(m, now)))) // not truncated
	}
	text := l.opts.Prefix + m.text(passed, memoryOf(l.pid))
	if others := len(l.under) - 1; others > 0 {
		text += fmt.Sprintf(", and %d more", others)
	}
	return text
}

// share returns the average number of processors that a compilation has used since the line was
// first shown, or 1 if that is not known.
func (l *Line) share(m *program, now time.Time) float64 {
	used := l.processor(m.pid)
	if used == 0 || !now.After(m.at) {
		return 1
	}
	return (used - m.used).Seconds() / now.Sub(m.at).Seconds()
}

func (m *program) text(passed time.Duration, memory int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s for %s (%d x %d devices): %s", m.Stage, m.Name, m.Target, m.Replicas, m.LogicalDevices, seconds(passed))
	switch {
	case m.known.over(passed):
		b.WriteString(", its end is not known")
	case m.known.like >= passed && m.known.like > 0:
		fmt.Fprintf(&b, " of about %s", seconds(m.known.like))
	case m.known.longest > 0:
		fmt.Fprintf(&b, " of up to %s", seconds(m.known.longest))
	}
	if m.TextBytes > 0 {
		size := fmt.Sprintf("%.1f kB", float64(m.TextBytes)/1e3)
		if m.TextBytes >= 1e6 {
			size = fmt.Sprintf("%.1f MB", float64(m.TextBytes)/1e6)
		}
		fmt.Fprintf(&b, ", %s of program", size)
	}
	if memory > 0 {
		fmt.Fprintf(&b, ", %s of memory", report.Bytes(memory))
	}
	return b.String()
}

// advice returns the message about a compilation whose end is not known. share is the number of
// processors that the compiler uses; below one, other processes or a limit slow it down.
func (m *program) advice(share float64) string {
	why := "no compilation of this size is on record"
	if m.known.longest > 0 {
		why = "it takes longer than any of its size before, up to " + seconds(m.known.longest)
	}
	if share < 0.5 {
		why += fmt.Sprintf(". It has %.0f%% of one processor: the machine is busy, or limits it", 100*share)
	}
	return fmt.Sprintf("%s compiles on, and nothing is known about when it ends: %s. Ctrl-C is safe: it loses this compilation, and of a run what is not saved yet. "+
		"Layers of one shape in a loop (loop.Layers) make a program, and its compilation, much shorter.", m.Name, why)
}

func seconds(d time.Duration) string { return d.Round(time.Second).String() }
