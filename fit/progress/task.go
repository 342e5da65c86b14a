package progress

import (
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/units"
)

// StartTask writes a line about a task that begins. On a terminal the line counts the seconds until
// the next StartTask, the next compilation, SetStatus or Close.
func (l *Line) StartTask(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.finishTask(now)
	text = l.opts.Prefix + text
	if l.width == nil {
		l.printLine(text)
		return
	}
	l.task, l.taskStart = text, now
	l.startDrawing()
	l.draw(now)
}

// SetStatus shows the result of state on a terminal while no program is compiled. state receives
// the number of columns; another goroutine calls it five times a second. If state is nil, the last
// status is printed as a line that is not overwritten.
func (l *Line) SetStatus(state func(width int) string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finishTask(time.Now())
	switch {
	case l.width == nil:
	case state != nil:
		l.status = state
		l.startDrawing()
	case l.status != nil:
		l.printLine(l.status(l.width() - 1))
		l.status = nil
		l.stopIfIdle()
	}
}

// Update shows the progress of a task and may be called often. On a terminal it updates the line.
// Otherwise it writes a line if the first word of text has changed, or if [Options].Every has
// passed since the previous line.
func (l *Line) Update(text string) {
	if l.IsTerminal() {
		l.SetStatus(func(width int) string { return l.opts.Prefix + text })
		return
	}
	l.mu.Lock()
	firstWord, _, _ := strings.Cut(text, " ")
	changed := firstWord != l.lastWord || time.Since(l.lastUpdate) >= l.opts.Every
	if changed {
		l.lastWord, l.lastUpdate = firstWord, time.Now()
	}
	l.mu.Unlock()
	if changed {
		l.StartTask(text)
	}
}

// finishTask ends the current task and prints its text as a line that is not overwritten.
func (l *Line) finishTask(now time.Time) {
	if l.task != "" {
		l.printLine(l.taskText(now))
		l.task = ""
		l.stopIfIdle()
	}
}

func (l *Line) taskText(now time.Time) string {
	if elapsed := now.Sub(l.taskStart); elapsed >= time.Second {
		return l.task + ": " + units.Duration(elapsed)
	}
	return l.task
}

// IsTerminal reports whether the progress line is drawn on a terminal.
func (l *Line) IsTerminal() bool { return l.width != nil }

// Write prints complete lines of text above the progress line.
func (l *Line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.erase()
	return l.w.Write(p)
}
