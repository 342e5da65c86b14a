package interrupt

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	clusterresolver "github.com/tpustrategy/tpustrategy/cluster_resolver"
	"github.com/tpustrategy/tpustrategy/internal/files"
)

// Options say what interrupts a process. The zero value is SIGINT and SIGTERM.
type Options struct {
	// Signals are the signals that are notices; nil is SIGINT and SIGTERM, an empty list is none.
	Signals []os.Signal
	// Metadata, if it is set, is followed for notices of pre-emption and of maintenance that stops
	// the machine. Where there is no metadata server, a line in the log says so, and nothing else.
	Metadata *clusterresolver.MetadataClient
	// File, if it is set, is a path. The file's appearance is a notice, and so is a change of it;
	// its first line is the reason. What is there at the start is of an earlier notice.
	File string
	// Notices are notices of one's own. The channel stays the caller's.
	Notices <-chan Notice
	// Grace is the time from SIGTERM until the process is ended by force; 0 is 30 seconds. A notice
	// of a file or of Notices that names no deadline has this one, too.
	Grace time.Duration
	// Logger receives each notice, and why a source has none to give; nil discards them.
	Logger *slog.Logger
}

// The time that Google Cloud gives after its notices: "Preemptible VM instances" and "Monitor and
// plan for a host maintenance event", cloud.google.com/compute/docs.
const (
	untilPreempted  = 30 * time.Second
	untilTerminated = 60 * time.Second
)

// filePause is the time between two looks at Options.File.
const filePause = 500 * time.Millisecond

// Notify returns a context that the first notice ends, with a [*Notice] as its cause. The second
// signal after it ends the process, as if nothing had been asked to be told of it: the first one
// may belong to the notice. stop releases what it takes, and waits for its goroutine.
func Notify(parent context.Context, o Options) (ctx context.Context, stop func()) {
	if o.Grace <= 0 {
		o.Grace = defaultGrace
	}
	if o.Signals == nil {
		o.Signals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, graceKey{}, o.Grace))
	over, end := context.WithCancel(context.Background())
	w := &watch{Options: o, cancel: cancel, over: over.Done(), done: make(chan struct{})}
	if len(o.Signals) > 0 {
		w.signals = make(chan os.Signal, 2)
		signal.Notify(w.signals, o.Signals...)
	}
	if o.Metadata != nil {
		w.events = o.Metadata.Watch(ctx)
	}
	if o.File != "" {
		w.seen = look(o.File)
	}
	go w.run(ctx)
	return ctx, func() {
		cancel(nil)
		end()
		<-w.done
	}
}

// watch gathers the notices of one Notify.
type watch struct {
	Options
	cancel  context.CancelCauseFunc
	signals chan os.Signal
	events  <-chan clusterresolver.Event
	seen    mark
	over    <-chan struct{} // closed by stop
	done    chan struct{}   // closed when the goroutine has ended
}

func (w *watch) run(ctx context.Context) {
	defer close(w.done)
	defer func() {
		if w.signals != nil {
			signal.Stop(w.signals)
		}
		for w.events != nil { // until its goroutines are gone
			if _, open := <-w.events; !open {
				w.events = nil
			}
		}
	}()
	var tick <-chan time.Time
	if w.File != "" {
		t := time.NewTicker(filePause)
		defer t.Stop()
		tick = t.C
	}
	var noticed *Notice
	for noticed == nil {
		select {
		case <-w.over:
			return
		case <-ctx.Done():
			return
		case s := <-w.signals:
			noticed = signalled(s, time.Now(), w.Grace)
		case e, open := <-w.events:
			if !open {
				w.events = nil
				continue
			}
			noticed = w.event(e)
		case n, open := <-w.Notices:
			if !open {
				w.Notices = nil
				continue
			}
			noticed = w.own(n)
		case <-tick:
			if now := look(w.File); now != w.seen {
				w.seen = now
				if now.exists {
					noticed = w.own(Notice{Reason: fileReason(w.File)})
				}
			}
		}
	}
	w.Logger.Warn("interrupt: the run is to end", "reason", noticed.Reason, "deadline", noticed.Deadline)
	w.cancel(noticed)
	if noticed.Signal == nil && w.signals != nil { // the signal that comes with it
		select {
		case <-w.signals:
		case <-w.over:
		}
	}
}

// event is the notice that an event of the metadata server is, or nil.
func (w *watch) event(e clusterresolver.Event) *Notice {
	switch e.Kind {
	case clusterresolver.EventPreempted:
		return &Notice{Reason: "the machine is being pre-empted", Deadline: time.Now().Add(untilPreempted)}
	case clusterresolver.EventMaintenanceTerminate:
		return &Notice{Reason: "host maintenance will stop the machine", Deadline: time.Now().Add(untilTerminated)}
	case clusterresolver.EventWatchEnded:
		w.Logger.Info("interrupt: no notices from the metadata server", "key", e.Key, "error", e.Err)
	default:
		w.Logger.Info("interrupt: an event that does not stop the machine", "event", e.Kind.String(), "value", e.Value)
	}
	return nil
}

// own is a notice of the caller's, with a reason and a deadline.
func (w *watch) own(n Notice) *Notice {
	if n.Reason == "" {
		n.Reason = "a notice without a reason"
	}
	if n.Deadline.IsZero() {
		n.Deadline = time.Now().Add(w.Grace)
	}
	return &n
}

// mark tells two states of a file apart.
type mark struct {
	exists bool
	size   int64
	time   time.Time
}

func look(path string) mark {
	info, err := os.Stat(path)
	if err != nil {
		return mark{}
	}
	return mark{true, info.Size(), info.ModTime()}
}

// fileReason is the first line of a notice's file, cut to a length that fits a log.
func fileReason(path string) string {
	reason := "the file " + path + " is there"
	f, _, err := files.Open(path)
	if err != nil {
		return reason
	}
	defer func(f fs.File) { _ = f.Close() }(f)
	head := make([]byte, 200)
	n, _ := io.ReadFull(f, head)
	line, _, _ := strings.Cut(string(head[:n]), "\n")
	if line = strings.ToValidUTF8(strings.TrimSpace(line), ""); line != "" {
		reason += ": " + line
	}
	return reason
}

// signaled is the notice that a signal is. One that a person gives has no deadline.
func signalled(s os.Signal, at time.Time, grace time.Duration) *Notice {
	n := &Notice{Reason: signalName(s), Signal: s}
	if s != os.Interrupt {
		n.Deadline = at.Add(grace)
	}
	return n
}

// signalName is a signal's name as manuals write it.
func signalName(s os.Signal) string {
	switch s {
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGINT:
		return "SIGINT"
	}
	return fmt.Sprintf("signal %q", s)
}
