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

// Options selects the sources of notices. The zero value selects SIGINT and SIGTERM.
type Options struct {
	// Signals are the signals that are notices; nil means SIGINT and SIGTERM, and an empty list
	// means none.
	Signals []os.Signal
	// Metadata, if not nil, is the metadata server to watch for preemption and for maintenance that
	// stops the machine. If there is no metadata server, one line is logged.
	Metadata *clusterresolver.MetadataClient
	// File, if set, is the path of a file whose creation or change is a notice. The first line of
	// the file is the reason. A file that exists at the start is ignored.
	File string
	// Notices is a channel of custom notices. The caller remains its owner.
	Notices <-chan Notice
	// Grace is the time from SIGTERM until the process is killed; 0 means 30 seconds. It is also
	// the time until the deadline of other notices without a deadline, except SIGINT.
	Grace time.Duration
	// Logger receives each notice, and the reason why a source is not available; nil discards them.
	Logger *slog.Logger
}

// Times between a notice of Google Cloud and the end of the machine: "Preemptible VM instances" and
// "Monitor and plan for a host maintenance event", cloud.google.com/compute/docs.
const (
	preemptionDelay  = 30 * time.Second
	maintenanceDelay = 60 * time.Second
)

// fileCheckInterval is the interval at which Options.File is checked.
const fileCheckInterval = 500 * time.Millisecond

// Notify returns a context that is canceled by the first notice; its cause is a [*Notice]. Signals
// after the notice have their default effect and end the process. If the notice was not a signal,
// the first signal after it is ignored, because it may accompany the notice. stop releases the
// resources and waits for the goroutine of Notify.
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
	stopped, stopWatch := context.WithCancel(context.Background())
	w := &watcher{Options: o, cancel: cancel, stopped: stopped.Done(), done: make(chan struct{})}
	if len(o.Signals) > 0 {
		w.signals = make(chan os.Signal, 2)
		signal.Notify(w.signals, o.Signals...)
	}
	if o.Metadata != nil {
		w.events = o.Metadata.Watch(ctx)
	}
	if o.File != "" {
		w.lastState = readFileState(o.File)
	}
	go w.run(ctx)
	return ctx, func() {
		cancel(nil)
		stopWatch()
		<-w.done
	}
}

// watcher waits for the first notice of one Notify call.
type watcher struct {
	Options
	cancel    context.CancelCauseFunc
	signals   chan os.Signal
	events    <-chan clusterresolver.Event
	lastState fileState
	stopped   <-chan struct{} // closed by stop
	done      chan struct{}   // closed when the goroutine has ended
}

func (w *watcher) run(ctx context.Context) {
	defer close(w.done)
	defer func() {
		if w.signals != nil {
			signal.Stop(w.signals)
		}
		for w.events != nil { // until its goroutines have ended
			if _, open := <-w.events; !open {
				w.events = nil
			}
		}
	}()
	var tick <-chan time.Time
	if w.File != "" {
		t := time.NewTicker(fileCheckInterval)
		defer t.Stop()
		tick = t.C
	}
	var noticed *Notice
	for noticed == nil {
		select {
		case <-w.stopped:
			return
		case <-ctx.Done():
			return
		case s := <-w.signals:
			noticed = signalNotice(s, time.Now(), w.Grace)
		case e, open := <-w.events:
			if !open {
				w.events = nil
				continue
			}
			noticed = w.eventNotice(e)
		case n, open := <-w.Notices:
			if !open {
				w.Notices = nil
				continue
			}
			noticed = w.withDefaults(n)
		case <-tick:
			if now := readFileState(w.File); now != w.lastState {
				w.lastState = now
				if now.exists {
					noticed = w.withDefaults(Notice{Reason: fileReason(w.File)})
				}
			}
		}
	}
	w.Logger.Warn("interrupt: the run will end", "reason", noticed.Reason, "deadline", noticed.Deadline)
	w.cancel(noticed)
	if noticed.Signal == nil && w.signals != nil { // the signal that may accompany the notice
		select {
		case <-w.signals:
		case <-w.stopped:
		}
	}
}

// eventNotice converts an event of the metadata server to a notice. It returns nil for an event
// that does not stop the machine.
func (w *watcher) eventNotice(e clusterresolver.Event) *Notice {
	switch e.Kind {
	case clusterresolver.EventPreempted:
		return &Notice{Reason: "the machine is being pre-empted", Deadline: time.Now().Add(preemptionDelay)}
	case clusterresolver.EventMaintenanceTerminate:
		return &Notice{Reason: "host maintenance will stop the machine", Deadline: time.Now().Add(maintenanceDelay)}
	case clusterresolver.EventWatchEnded:
		w.Logger.Info("interrupt: no notices from the metadata server", "key", e.Key, "error", e.Err)
	default:
		w.Logger.Info("interrupt: an event that does not stop the machine", "event", e.Kind.String(), "value", e.Value)
	}
	return nil
}

// withDefaults returns a copy of a custom notice. It sets the reason and the deadline if they are
// missing.
func (w *watcher) withDefaults(n Notice) *Notice {
	if n.Reason == "" {
		n.Reason = "a notice without a reason"
	}
	if n.Deadline.IsZero() {
		n.Deadline = time.Now().Add(w.Grace)
	}
	return &n
}

// fileState identifies a version of a file.
type fileState struct {
	exists bool
	size   int64
	time   time.Time
}

func readFileState(path string) fileState {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}
	}
	return fileState{true, info.Size(), info.ModTime()}
}

// fileReason returns a reason with the path and the first line of a notice file, truncated to 200
// bytes.
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

// signalNotice returns the notice of a signal. SIGINT has no deadline, because a person sends it.
func signalNotice(s os.Signal, at time.Time, grace time.Duration) *Notice {
	n := &Notice{Reason: signalName(s), Signal: s}
	if s != os.Interrupt {
		n.Deadline = at.Add(grace)
	}
	return n
}

// signalName returns the name of a signal, such as "SIGTERM".
func signalName(s os.Signal) string {
	switch s {
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGINT:
		return "SIGINT"
	}
	return fmt.Sprintf("signal %q", s)
}
