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
	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report/phase"
)

// Options configure a [Line]. The zero value works.
type Options struct {
	// Prefix is printed at the start of each line, for example "program: ".
	Prefix string
	// Record is the file with the durations of earlier compilations; empty means none.
	// [DefaultRecordFile] returns the file that programs share.
	Record string
	// Every is the interval between two lines if w is not a terminal; 0 means 10 seconds.
	Every time.Duration
}

// Line shows the progress of running compilations. On a terminal, it shows the text of
// [Line.StartTask] and [Line.SetStatus] while no program is compiled. It is safe for concurrent
// use.
type Line struct {
	w    io.Writer
	opts Options
	// width returns the number of columns of the terminal; it is nil if w is not a terminal.
	width func() int
	// cpuTime returns the processor time of a process, or 0 if it is not known.
	cpuTime func(pid int) time.Duration

	mu          sync.Mutex
	jobs        []*compileJob // current compilations, the newest last
	pid         int           // process ID of the compiler; 0 means this process
	task        string        // task of StartTask on a terminal, since taskStart
	taskStart   time.Time
	status      func(width int) string // function of SetStatus
	lastWord    string                 // first word of the last text of Update, at time lastUpdate
	lastUpdate  time.Time
	drawn       bool   // there is text on the terminal's line
	stopDrawing func() // stops the drawing goroutine; nil if it does not run
}

type compileJob struct {
	phase.Phase
	stageStart time.Time // start of the stage
	estimate   estimate
	warned     bool // the message about the unknown end was shown
	// The compiler's process and its processor time when the line was first shown, at cpuStart.
	pid      int
	cpuStart time.Time
	cpuUsed  time.Duration
}

// drawDelay is the time before a line appears on a terminal, and redrawInterval is the time between
// two redraws.
const (
	drawDelay      = 300 * time.Millisecond
	redrawInterval = 200 * time.Millisecond
)

// NewLine returns a Line that writes to w. If w is a terminal, the line is redrawn in place.
func NewLine(w io.Writer, o Options) *Line {
	l := &Line{w: w, opts: o, cpuTime: processCPUTime}
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

// SetPhase reports the stage of a compilation. Use it as strategy.Options.Phases, and call it from
// other code that compiles. It may read or write the record file, but does not block otherwise.
func (l *Line) SetPhase(p phase.Phase) {
	now := time.Now()
	var expected estimate
	if p.Stage == phase.Compiling {
		expected = estimateDuration(l.opts.Record, p)
	}
	duration, previous := l.updateJob(p, now, expected)
	if p.Stage == phase.Done && p.Err == nil && previous.Stage == phase.Compiling {
		appendRecord(l.opts.Record, previous, duration)
	}
}

// updateJob updates the stage of a compilation. It returns the previous stage and its duration.
func (l *Line) updateJob(p phase.Phase, now time.Time, expected estimate) (duration time.Duration,
	previous phase.Phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.jobs, func(j *compileJob) bool { return j.Name == p.Name && j.Target == p.Target })
	if i >= 0 {
		duration, previous = now.Sub(l.jobs[i].stageStart), l.jobs[i].Phase
	}
	switch {
	case p.Stage != phase.Done && i < 0:
		l.finishTask(now)
		l.jobs = append(l.jobs, &compileJob{Phase: p, stageStart: now, estimate: expected})
		l.startDrawing()
	case p.Stage != phase.Done:
		*l.jobs[i] = compileJob{Phase: p, stageStart: now, estimate: expected}
	case i >= 0:
		l.jobs = slices.Delete(l.jobs, i, i+1)
		l.stopIfIdle()
	}
	return duration, previous
}

// SetProcess sets the process whose memory the line shows, if the compiler runs in another process.
// 0 means this process. With -1 the line shows no memory.
func (l *Line) SetProcess(pid int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pid = pid
}

// Close erases the line and removes all compilations from it. The line can be used again.
func (l *Line) Close() {
	if l == nil || l.w == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finishTask(time.Now())
	l.jobs, l.status = nil, nil
	l.stopIfIdle()
}

func (l *Line) startDrawing() {
	if l.stopDrawing == nil {
		l.stopDrawing = l.startDrawLoop()
	}
}

func (l *Line) stopIfIdle() {
	if len(l.jobs) > 0 {
		return
	}
	l.erase()
	if l.stopDrawing != nil && l.task == "" && l.status == nil {
		l.stopDrawing()
		l.stopDrawing = nil
	}
}

func (l *Line) erase() {
	if l.drawn {
		_, _ = io.WriteString(l.w, "\r\x1b[K")
		l.drawn = false
	}
}

// startDrawLoop starts a goroutine that draws the line periodically until stop is called.
func (l *Line) startDrawLoop() (stop func()) {
	done := make(chan struct{})
	first, next := l.opts.Every, l.opts.Every
	if l.width != nil {
		first, next = drawDelay, redrawInterval
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
				l.draw(time.Now())
			}
			l.mu.Unlock()
			timer.Reset(next)
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

func (l *Line) draw(now time.Time) {
	var text string
	switch {
	case len(l.jobs) > 0:
		text = l.jobText(now)
	case l.task != "":
		text = l.taskText(now)
	default:
		text = l.status(l.width() - 1)
	}
	if l.width == nil {
		l.printLine(text)
		return
	}
	fmt.Fprintf(l.w, "\r\x1b[K%s", l.truncate(text))
	l.drawn = true
}

// printLine writes a line of text that is not overwritten later.
func (l *Line) printLine(text string) {
	l.erase()
	fmt.Fprintln(l.w, l.truncate(text))
}

// truncate escapes control characters in text and truncates it to one line of the terminal.
func (l *Line) truncate(text string) string {
	text = plain.EscapeLine(text)
	if l.width != nil {
		if r, width := []rune(text), l.width()-1; len(r) > width { // the last column would wrap
			return string(r[:width])
		}
	}
	return text
}

// jobText returns the line for the newest compilation. If the compilation exceeds its estimate,
// jobText prints a message above the line once.
func (l *Line) jobText(now time.Time) string {
	job := l.jobs[len(l.jobs)-1]
	elapsed := now.Sub(job.stageStart)
	if job.pid != l.pid || job.cpuStart.IsZero() {
		job.pid, job.cpuStart, job.cpuUsed = l.pid, now, l.cpuTime(l.pid)
	}
	if job.Stage == phase.Compiling && job.estimate.isExceeded(elapsed) && elapsed > defaultLimit && !job.warned {
		job.warned = true
		l.erase()
		fmt.Fprintln(l.w, plain.EscapeLine(l.opts.Prefix+job.lateMessage(l.cpuShare(job, now)))) // not truncated
	}
	text := l.opts.Prefix + job.text(elapsed, processMemory(l.pid))
	if others := len(l.jobs) - 1; others > 0 {
		text += fmt.Sprintf(", and %d more", others)
	}
	return text
}

// cpuShare returns the average number of processors that a compilation has used since it was first
// shown. If that number is unknown, it returns 1.
func (l *Line) cpuShare(job *compileJob, now time.Time) float64 {
	used := l.cpuTime(job.pid)
	if used == 0 || !now.After(job.cpuStart) {
		return 1
	}
	return (used - job.cpuUsed).Seconds() / now.Sub(job.cpuStart).Seconds()
}

func (j *compileJob) text(elapsed time.Duration, memory int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s for %s (%d x %d devices): %s", j.Stage, j.Name, j.Target, j.Replicas, j.LogicalDevices,
		units.Duration(elapsed))
	switch {
	case j.estimate.isExceeded(elapsed):
		b.WriteString(", its end is not known")
	case j.estimate.expected >= elapsed && j.estimate.expected > 0:
		fmt.Fprintf(&b, " of about %s", units.Duration(j.estimate.expected))
	case j.estimate.longest > 0:
		fmt.Fprintf(&b, " of up to %s", units.Duration(j.estimate.longest))
	}
	if j.TextBytes > 0 {
		size := fmt.Sprintf("%.1f kB", float64(j.TextBytes)/1e3)
		if j.TextBytes >= 1e6 {
			size = fmt.Sprintf("%.1f MB", float64(j.TextBytes)/1e6)
		}
		fmt.Fprintf(&b, ", %s of program", size)
	}
	if memory > 0 {
		fmt.Fprintf(&b, ", %s of memory", units.Bytes(memory))
	}
	return b.String()
}

// lateMessage returns the message about a compilation that exceeds its estimate. share is the average
// number of processors that the compiler uses.
func (j *compileJob) lateMessage(share float64) string {
	why := "no compilation of this size is on record"
	if j.estimate.longest > 0 {
		why = "it takes longer than any of its size before, up to " + units.Duration(j.estimate.longest)
	}
	if share < 0.5 {
		why += fmt.Sprintf(". It has %.0f%% of one processor: the machine is busy, or limits it", 100*share)
	}
	return fmt.Sprintf("%s is still compiling, and the remaining time is not known: %s. Ctrl-C is safe: it loses only "+
		"this compilation and the unsaved steps of a run. "+
		"Layers of one shape in a loop (loop.Layers) make a program, and its compilation, much shorter.", j.Name, why)
}
