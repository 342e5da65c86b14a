package progress

import (
	"strings"
	"time"
)

// Say writes a line about work that begins. On a terminal it counts the seconds until the work is
// over: until the next one, a program that is being made, Status or Close.
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

// Status shows on a terminal, whenever no program is being made, what state returns, which is told
// for how many columns and is called from other goroutines, five times a second. nil leaves the last
// state as a line.
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

// Now says how far work is, which may change often: on a terminal in its line, elsewhere as a line when
// the first word is another one and at most once in [Options].Every otherwise.
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

// settle leaves what was said as a line.
func (l *Line) settle(now time.Time) {
	if l.said != "" {
		l.leave(l.work(now))
		l.said = ""
		l.end()
	}
}

// work is what was said, with the time since.
func (l *Line) work(now time.Time) string {
	if passed := now.Sub(l.began); passed >= time.Second {
		return l.said + ": " + seconds(passed)
	}
	return l.said
}

// Terminal reports whether the line is drawn over and over.
func (l *Line) Terminal() bool { return l.width != nil }

// Write writes whole lines of text above the line.
func (l *Line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wipe()
	return l.w.Write(p)
}
