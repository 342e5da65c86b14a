package progress

import (
	"strings"
	"time"
)

// Say writes a line about work that begins. On a terminal the line counts the seconds until the
// next Say, the next compilation, Status or Close.
func (l *Line) Say(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.settle(now)
	text = l.opts.Prefix + text
	if l.width == nil {
		l.leave(text)
		return
	}
	l.said, l.began = text, now
	l.start()
	l.show(now)
}

// Status shows the result of state on a terminal whenever no program is compiled. state receives
// the number of columns. Another goroutine calls it five times a second. With nil, the last state
// stays as a line.
func (l *Line) Status(state func(width int) string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle(time.Now())
	switch {
	case l.width == nil:
	case state != nil:
		l.state = state
		l.start()
	case l.state != nil:
		l.leave(l.state(l.width() - 1))
		l.state = nil
		l.end()
	}
}

// Now shows the progress of work and may be called often. On a terminal it updates the line.
// Elsewhere it writes a line if the first word of the text has changed, and otherwise at most once
// in [Options].Every.
func (l *Line) Now(text string) {
	if l.Terminal() {
		l.Status(func(width int) string { return l.opts.Prefix + text })
		return
	}
	l.mu.Lock()
	doing, _, _ := strings.Cut(text, " ")
	say := doing != l.doing || time.Since(l.spoke) >= l.opts.Every
	if say {
		l.doing, l.spoke = doing, time.Now()
	}
	l.mu.Unlock()
	if say {
		l.Say(text)
	}
}

// settle ends the work of Say: its text stays as a line.
func (l *Line) settle(now time.Time) {
	if l.said != "" {
		l.leave(l.work(now))
		l.said = ""
		l.end()
	}
}

// work returns the text of Say with the elapsed time.
func (l *Line) work(now time.Time) string {
	if passed := now.Sub(l.began); passed >= time.Second {
		return l.said + ": " + seconds(passed)
	}
	return l.said
}

// Terminal reports whether the line is drawn on a terminal.
func (l *Line) Terminal() bool { return l.width != nil }

// Write writes complete lines of text above the line.
func (l *Line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wipe()
	return l.w.Write(p)
}
