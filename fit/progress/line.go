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
	// Prefix stands before each line, such as "program: ".
	Prefix string
	// Record is the file that remembers how long compilations took; empty is none. [RecordFile] is
	// the one that programs share.
	Record string
	// Every is the time between two lines where w is no terminal; 0 is 10 seconds.
	Every time.Duration
}

// Line shows the programs that are being made, one line for all; on a terminal, where none is, what
// [Line.Say] and [Line.Status] were given. It is safe for concurrent use.
type Line struct {
	w    io.Writer
	opts Options
	// width returns the columns of the terminal; nil if w is none.
	width func() int
	// processor returns the processor time of a process, 0 if it is not known.
	processor func(pid int) time.Duration

	mu    sync.Mutex
	under []*program // the newest last
	pid   int        // of the compiler's process; 0 is this one
	said  string     // on a terminal, the work that began then; see Say
	began time.Time
	state func(width int) string // see Status
	doing string                 // the first word of what Now said last, and when
	spoke time.Time
	drawn bool   // there is text on the terminal's line
	stop  func() // ends the drawing; nil while nothing is under way
}

// program is a program on its way.
type program struct {
	phase.Phase
	since time.Time // of the stage
	known estimate
	told  bool // that its end is not known any more
	// The compiler's process when the line was first shown, the time and its processor time.
	pid  int
	at   time.Time
	used time.Duration
}

// The terminal's line appears after patience, and is drawn anew after each redraw.
const (
	patience = 300 * time.Millisecond
	redraw   = 200 * time.Millisecond
)

// To returns a line that is written to w. It is drawn over and over if w is a terminal.
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

// Phase is for strategy.Options.Phases, and for whoever else compiles: it notes the stage that a
// program has come to. It returns at once, but for the moment that a record of a compilation takes.
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

// note takes the stage in, and returns the one before it with the time that it took.
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

// Process says which process compiles, whose memory the line shows: one that was started for it. 0
// is this process, and -1 one that is not known: the line shows no memory then.
func (l *Line) Process(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pid = pid
}

// Close wipes the line and forgets what is under way. The line may be used again.
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

// start starts the drawing, and end ends it if there is nothing to draw.
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

// draw starts the drawing, until stop is called.
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
			case <-done: // the line is another's, or wiped
			default:
				l.show(time.Now())
			}
			l.mu.Unlock()
			timer.Reset(next)
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

// show writes the line.
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

// leave writes a line that stays.
func (l *Line) leave(text string) {
	l.wipe()
	fmt.Fprintln(l.w, l.cut(text))
}

// cut is a text in one line of the terminal.
func (l *Line) cut(text string) string {
	text = plain.Line(text)
	if l.width != nil {
		if r, width := []rune(text), l.width()-1; len(r) > width { // the last column would wrap
			return string(r[:width])
		}
	}
	return text
}

// program is the line of the newest program, and writes above it, once, that the end of its
// compilation is not known any more.
func (l *Line) program(now time.Time) string {
	m := l.under[len(l.under)-1]
	passed := now.Sub(m.since)
	if m.pid != l.pid || m.at.IsZero() {
		m.pid, m.at, m.used = l.pid, now, l.processor(l.pid)
	}
	if m.Stage == phase.Compiling && m.known.over(passed) && passed > unguided && !m.told {
		m.told = true
		l.wipe()
		fmt.Fprintln(l.w, plain.Line(l.opts.Prefix+m.advice(l.share(m, now)))) // whole
	}
	text := l.opts.Prefix + m.text(passed, memoryOf(l.pid))
	if others := len(l.under) - 1; others > 0 {
		text += fmt.Sprintf(", and %d more", others)
	}
	return text
}

// share returns how much of one processor a compilation has had since the line was first shown; 1 if
// that is not known.
func (l *Line) share(m *program, now time.Time) float64 {
	used := l.processor(m.pid)
	if used == 0 || !now.After(m.at) {
		return 1
	}
	return (used - m.used).Seconds() / now.Sub(m.at).Seconds()
}

// text describes the stage in ASCII.
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

// advice says that nothing tells when a compilation ends, and what one can do. share is how much of
// one processor it has: a compiler takes all of one, or more, unless others do.
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
