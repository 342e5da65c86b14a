package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/plain"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/strategy/status"
)

type watchCmd struct {
	Place    string        `arg:"" help:"The run's folder, or its URL such as gs://bucket/run: what was given to fit.Watch as Place."`
	Once     bool          `help:"Show the hosts once, and end. That looks twice, to tell who is alive."`
	Interval time.Duration `help:"The time between two looks." default:"1s"`
}

// Help is the text under --help.
func (watchCmd) Help() string {
	return `Shows the hosts of a run: the step, rate, loss and last checkpoint of each, what each waits for and
since when, and who lags. A terminal is drawn anew; elsewhere lines are written as things change. It
ends when all hosts have ended.

Examples:
  tpustrategy watch run
  tpustrategy watch gs://bucket/run --once --json

Whether a host is alive is told by its records' changing, not by its clock. With --json each look is
one JSON value, on a line of its own.`
}

// leastInterval bounds the looks at a place that others work with.
const leastInterval = 200 * time.Millisecond

// Run watches a run.
func (c *watchCmd) Run(ctx context.Context, a *app, root *cli) error {
	if c.Interval < leastInterval {
		return misused("watch", "give 200ms or more", "an interval of %v", c.Interval)
	}
	if err := there("watch", "give the run's folder", c.Place); err != nil {
		return err
	}
	board, err := status.Open(ctx, c.Place)
	if err != nil {
		return refused("watch", err)
	}
	defer board.Close()
	w := &watcher{board: board, view: status.NewView(), every: c.Interval, now: time.Now}
	switch f, ok := a.terminal(); {
	case c.Once:
		return w.once(ctx, a, root.JSON)
	case root.JSON:
		return w.follow(ctx, func() error { return a.printLine(w.seen) })
	case ok:
		return w.follow(ctx, w.drawn(a.bytes(), func() (int, int, error) { return term.GetSize(int(f.Fd())) }))
	}
	return w.follow(ctx, w.lines(a.stdout))
}

// reached refuses a URL of a store that is not in this program.
func reached(op, place string) error {
	scheme, _, _ := strings.Cut(strings.ToLower(place), "://")
	if !storage.IsURL(place) || scheme == "file" || slices.Contains(storage.Schemes(), scheme) {
		return nil
	}
	return misused(op, "give a folder, or build the command with -overlay, as docs/multihost.md says of checkpoints in a bucket",
		"this program reaches no %s://", scheme)
}

// there refuses a place that is no folder, which opening it would make, unless it is a URL.
func there(op, hint, place string) error {
	if files.Local(place) != nil {
		return reached(op, place)
	}
	info, err := os.Stat(place)
	if err != nil {
		return refused(op, err)
	}
	if !info.IsDir() {
		return misused(op, hint, "%s is no folder", place)
	}
	return nil
}

// terminal returns the standard output if it is a terminal.
func (a *app) terminal() (*os.File, bool) {
	w := a.stdout
	if o, ok := w.(*output); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// watcher looks at a run.
type watcher struct {
	board *status.Board
	view  *status.View
	every time.Duration
	now   func() time.Time

	began  time.Time
	seen   watched
	sights []status.Sight
}

// watched is a look at a run: what is written as lines, drawn, and printed as JSON.
type watched struct {
	Place      string           `json:"place"`
	Run        string           `json:"run"`
	Time       time.Time        `json:"time"`
	Summary    string           `json:"summary"`
	Over       bool             `json:"over"`
	Hosts      []watchedHost    `json:"hosts"`
	Findings   []status.Finding `json:"findings"`
	Remarks    []string         `json:"remarks,omitempty"`
	Unreadable int              `json:"unreadable,omitempty"`

	empty bool // nothing is there
	fresh bool // each host that has not ended was seen alive
}

type watchedHost struct {
	Missing bool          `json:"missing,omitempty"`
	Alive   bool          `json:"alive"`
	Silent  status.Number `json:"silent"`
	status.Record
}

// look reads the records.
func (w *watcher) look(ctx context.Context) error {
	began, first := w.now(), w.began.IsZero()
	all, unreadable, err := w.board.Read(ctx)
	now := w.now()
	if first {
		w.began = now
	} else if gap := now.Sub(w.seen.Time) - w.every; gap > 2*time.Second || err != nil {
		w.view.Excuse(max(gap, now.Sub(began)), now) // the place was slow, or this process was stopped
	}
	w.seen.Time = now
	if err != nil {
		if ctx.Err() != nil || first {
			return err
		}
		const failed = "the last look failed: " // it may come back
		w.seen.Remarks = slices.DeleteFunc(slices.Clone(w.seen.Remarks), func(text string) bool { return strings.HasPrefix(text, failed) })
		w.seen.Remarks = append(w.seen.Remarks, line(failed+err.Error()))
		return nil
	}
	w.view.Newest(all, now)
	w.view.See(all, now, now)
	w.sights = w.view.Sights(now)
	w.seen = w.answer(all, unreadable, now)
	return nil
}

// answer is what there is to say of a look.
func (w *watcher) answer(all []status.Record, unreadable []error, now time.Time) watched {
	run, hosts := w.view.Run()
	v := watched{Place: w.board.String(), Run: run, Time: now, Summary: status.Summary(w.sights), Over: len(w.sights) > 0,
		Hosts: []watchedHost{}, Findings: append([]status.Finding{}, status.Judge(w.sights, status.Outside)...), Unreadable: len(unreadable),
		empty: len(all)+len(unreadable) == 0, fresh: len(w.sights) > 0}
	changed, running := 0, 0
	for _, s := range w.sights {
		ended := !s.Missing && s.Record.State == status.Ended
		v.Hosts = append(v.Hosts, watchedHost{Missing: s.Missing, Alive: s.Alive() && !ended, Silent: status.Number(s.Silent.Seconds()), Record: s.Record})
		v.Over = v.Over && ended
		v.fresh = v.fresh && (ended || s.Changed)
		if !s.Missing && !ended {
			running++
			if s.Changed || s.Silent < s.Limit/2 {
				changed++
			}
		}
	}
	say := func(format string, args ...any) { v.Remarks = append(v.Remarks, line(fmt.Sprintf(format, args...))) }
	for _, f := range v.Findings {
		say("%s", f)
	}
	if running > 0 && changed == 0 {
		say("no record has changed for %v; the last one was written %v ago, by its host's clock: the run is dead, stopped, or cut off",
			now.Sub(w.began).Round(100*time.Millisecond), status.Age(all, now).Round(time.Second))
	}
	for _, r := range all {
		if r.Run != run || r.Host >= hosts {
			say("%s has a record of another run, %q after step %d: it is left out", r.Title(), r.Run, r.Step)
		}
	}
	for _, err := range unreadable {
		say("%v", err)
	}
	if v.empty {
		say("no host has a record in %s yet: a run writes them with the hook fit.Watch and this Place", w.board)
	}
	return v
}

// line is a text on one line: what hosts say may have line ends in it.
func line(text string) string { return plain.Line(strings.Join(strings.Fields(text), " ")) }

// once looks until every host has been seen alive, or should have been.
func (w *watcher) once(ctx context.Context, a *app, asJSON bool) error {
	wait := 2500 * time.Millisecond
	if w.board.Objects() {
		wait = 5 * time.Second
	}
	w.view.MinSilence = wait / 2
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		if w.seen.empty || w.seen.fresh || w.now().Sub(w.began) >= wait {
			break
		}
		if err := pause(ctx, min(w.every, wait/4)); err != nil {
			return err
		}
	}
	if asJSON {
		return a.printJSON(w.seen)
	}
	for _, line := range w.text(0) {
		fmt.Fprintln(a.stdout, line)
	}
	return nil
}

// follow looks until the run is over, and shows what it sees.
func (w *watcher) follow(ctx context.Context, show func() error) error {
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		if err := show(); err != nil || w.seen.Over {
			return err
		}
		if err := pause(ctx, w.every); err != nil {
			return err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// text is everything that there is to say, a table with it. A line of the table has at most width
// columns; 0 is any.
func (w *watcher) text(width int) []string {
	if w.seen.empty {
		return w.seen.Remarks
	}
	lines := append([]string{w.summary()}, status.Table(w.sights, width)...)
	return append(lines, w.seen.Remarks...)
}

func (w *watcher) summary() string {
	if w.seen.Run == "" {
		return line(w.seen.Summary)
	}
	return line("run " + w.seen.Run + ": " + w.seen.Summary)
}

// drawn shows the hosts on a terminal, always in the same place.
func (w *watcher) drawn(out io.Writer, size func() (width, height int, err error)) func() error {
	before := 0
	return func() error {
		width, height, err := size()
		if err != nil || width < 20 || height < 4 {
			width, height = 80, 24
		}
		lines := w.text(width)
		if len(lines) >= height { // the end is what matters: who is late
			lines = append(lines[:2:2], lines[len(lines)-height+3:]...)
		}
		var b strings.Builder
		if before > 0 {
			fmt.Fprintf(&b, "\x1b[%dA", before)
		}
		b.WriteString("\r\x1b[J")
		before = 0
		for _, line := range lines {
			b.WriteString(line + "\n")
			before += 1 + max(len([]rune(line))-1, 0)/width // a long line takes several
		}
		_, err = io.WriteString(out, b.String())
		return err
	}
}

// between is the time between two lines that say nothing new.
const between = 10 * time.Second

// lines writes a line as things change, and one now and then.
func (w *watcher) lines(out io.Writer) func() error {
	var last time.Time
	var said []string
	return func() error {
		now := w.seen.Time
		var news []string
		for _, line := range w.seen.Remarks {
			if !slices.ContainsFunc(said, func(s string) bool { return about(s) == about(line) }) {
				news = append(news, line)
			}
		}
		said = w.seen.Remarks
		if now.Sub(last) >= between && len(w.sights) > 0 || w.seen.Over {
			last = now
			news = append([]string{w.summary()}, news...)
		}
		for _, line := range news {
			if _, err := fmt.Fprintf(out, "%s %s\n", now.Format(time.TimeOnly), line); err != nil {
				return err
			}
		}
		return nil
	}
}

// about is a line without its numbers: what it is about.
func about(line string) string {
	head, rest, _ := strings.Cut(line, ": ") // the host
	return head + strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r == '.' {
			return -1
		}
		return r
	}, rest)
}
