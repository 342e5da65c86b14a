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

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/files"
	"github.com/tpustrategy/tpustrategy/internal/plain"
	"github.com/tpustrategy/tpustrategy/storage"
)

type watchCmd struct {
	Place    string        `arg:"" help:"Folder of the run, or its URL such as gs://bucket/run: the Place of fit.Watch."`
	Once     bool          `help:"Show the hosts once and exit. It reads the records twice, to detect which hosts are alive."`
	Interval time.Duration `help:"Time between two reads." default:"1s"`
}

func (watchCmd) Help() string {
	return `Shows the hosts of a run: the step, rate, loss and last checkpoint of each host, its current activity and the duration of the activity, and the hosts that are behind. On a terminal the table is redrawn; otherwise a line is printed for each change. The command exits when all hosts have ended.

Examples:
  tpustrategy watch run
  tpustrategy watch gs://bucket/run --once --json

A host is alive if its record changes; clocks are not compared. With --json each read is one JSON value on one line.`
}

// minInterval is the minimum value of --interval. It limits the load on the storage of the run.
const minInterval = 200 * time.Millisecond

func (c *watchCmd) Run(ctx context.Context, a *app, root *cli) error {
	if c.Interval < minInterval {
		return usageErrorf("watch", "give 200ms or more", "an interval of %v", c.Interval)
	}
	if err := checkFolder("watch", "give the run's folder", c.Place); err != nil {
		return err
	}
	board, err := watchdog.OpenRecordStore(ctx, c.Place)
	if err != nil {
		return newUsageError("watch", err)
	}
	defer board.Close()
	show := (&changeLog{out: a.stdout}).show
	if f, ok := a.stdoutTerminal(); ok {
		show = redrawStatus(a.rawStdout(), func() (int, int, error) { return term.GetSize(int(f.Fd())) })
	}
	if root.JSON {
		show = func(l *watchdog.RunStatus) error { return a.printLine(l) }
	}
	view, began := &watchdog.Monitor{}, time.Now()
	wait := 2500 * time.Millisecond // in this time a live host updates its record
	if storage.IsURL(c.Place) {
		wait *= 2
	}
	if c.Once {
		view.MinSilence, c.Interval = wait/2, min(c.Interval, wait/4)
	}
	var last watchdog.RunStatus
	for {
		l, err := view.Status(ctx, board)
		switch {
		case err == nil:
			last = l
		case ctx.Err() != nil || last.Time.IsZero():
			return err
		default: // the error may be temporary
			last.Remarks = append(slices.DeleteFunc(last.Remarks, func(text string) bool {
				return strings.HasPrefix(text,
					readFailedPrefix)
			}), plain.EscapeLine(readFailedPrefix+err.Error()))
		}
		if !c.Once {
			err = show(&last)
		} else if last.Settled || time.Since(began) >= wait {
			return a.showOnce(&last, root.JSON)
		}
		if err != nil || last.Ended {
			return err
		}
		select {
		case <-time.After(c.Interval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// readFailedPrefix is the prefix of the remark that reports a failed read of the run's status.
const readFailedPrefix = "the last look failed: "

func (a *app) showOnce(l *watchdog.RunStatus, asJSON bool) error {
	if asJSON {
		return a.printJSON(l)
	}
	_, err := fmt.Fprintln(a.stdout, strings.Join(l.Lines(0), "\n"))
	return err
}

// checkScheme returns an error if place is a URL whose storage backend is not part of this program.
func checkScheme(op, place string) error {
	scheme, _, _ := strings.Cut(strings.ToLower(place), "://")
	if !storage.IsURL(place) || scheme == "file" || slices.Contains(storage.Schemes(), scheme) {
		return nil
	}
	return usageErrorf(op, "give a folder, or build the command with -overlay, as docs/buckets.md describes",
		"this program reaches no %s://", scheme)
}

// checkFolder returns an error if place is neither a URL nor an existing folder. Without this
// check, opening a missing folder would create it.
func checkFolder(op, hint, place string) error {
	if files.CheckLocal(place) != nil {
		return checkScheme(op, place)
	}
	info, err := os.Stat(place)
	if err != nil {
		return newUsageError(op, err)
	}
	if !info.IsDir() {
		return usageErrorf(op, hint, "%s is no folder", place)
	}
	return nil
}

// stdoutTerminal returns the standard output, and reports whether it is a terminal.
func (a *app) stdoutTerminal() (*os.File, bool) {
	w := a.stdout
	if o, ok := w.(*checkedOutput); ok {
		w = o.w
	}
	f, ok := w.(*os.File)
	return f, ok && term.IsTerminal(int(f.Fd()))
}

// redrawStatus returns a function that draws the status of a run over the previous one on a terminal.
func redrawStatus(out io.Writer, size func() (width, height int, err error)) func(*watchdog.RunStatus) error {
	return func(l *watchdog.RunStatus) error {
		width, height, err := size()
		if err != nil || width < 20 || height < 4 {
			width, height = 80, 24
		}
		lines := l.Lines(width)
		for i, line := range lines { // longer lines use several lines of the terminal
			height -= max(len([]rune(line))-1, 0) / width
			lines[i] = line + "\x1b[K\n"
		}
		if height = max(height, 4); len(lines) >= height { // keep the end, which names the late hosts
			lines = append(lines[:2:2], lines[len(lines)-height+3:]...)
		}
		_, err = io.WriteString(out, "\x1b[H"+strings.Join(lines, "")+"\x1b[J")
		return err
	}
}

// changeLog prints the status of a run when it changes, and at least every 10 seconds.
type changeLog struct {
	out       io.Writer
	last      time.Time
	lastState string // the last printed state, without numbers
}

func (n *changeLog) show(l *watchdog.RunStatus) error {
	said := fmt.Sprint(len(l.Remarks))
	for _, f := range l.Findings {
		said += fmt.Sprint(" ", f.Host, f.Cause)
	}
	if said == n.lastState && l.Time.Sub(n.last) < 10*time.Second && !l.Ended {
		return nil
	}
	n.lastState, n.last = said, l.Time
	var b strings.Builder
	for _, line := range append([]string{l.Title()}, l.Remarks...) {
		fmt.Fprintf(&b, "%s %s\n", l.Time.Format(time.TimeOnly), line)
	}
	_, err := io.WriteString(n.out, b.String())
	return err
}
