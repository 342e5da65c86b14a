package watchdog

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/internal/activity"
	"github.com/tpustrategy/tpustrategy/strategy/goodput"
	"github.com/tpustrategy/tpustrategy/strategy/status"
)

// Activity is what a host does or waits for.
type Activity = activity.Kind

// The activities, for [Watchdog.Do] and [Watchdog.Begin].
const (
	Other    = activity.Other
	Input    = activity.Input
	Launch   = activity.Launch
	Result   = activity.Result
	Exchange = activity.Exchange
	Compile  = activity.Compile
	Save     = activity.Save
	Restore  = activity.Restore
	Hook     = activity.Hook
	Setup    = activity.Setup
)

// frame is an activity under way.
type frame struct {
	kind activity.Kind
	name string
	own  time.Duration // without what is nested in it, up to the last mark
	id   int64
}

// Watchdog watches the steps of a host. Its methods are safe for concurrent use, but Do and Step
// are those of the goroutine that takes the steps.
type Watchdog struct {
	opts    Options
	board   *status.Board        // or nil
	owned   bool                 // the board is
	now     func() time.Duration // since the start; the clock of the times below
	verdict context.Context      // which the StuckError ends
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed by Close
	left    chan struct{} // closed when the watchdog's goroutine has ended

	mu        sync.Mutex // guards what follows
	stack     []frame    // the first one is Do's
	mark      time.Duration
	marks     int64
	begun     int64
	looked    time.Duration // the last tick
	record    status.Record // what is known between two looks
	paces     [activity.Kinds]pace
	hooks     map[string]*pace
	sums      [activity.Kinds]time.Duration
	took      [activity.Kinds]time.Duration
	suspected []status.Finding // the last that were sure, and when
	suspectAt time.Duration
	past      *goodput.History // of the lives before, on host 0
	life      goodput.History  // this one's start
	resumed   bool             // life.From is known
	heir      bool             // past is
}

// maxNested bounds the activities within each other.
const maxNested = 32

// processStart is when this process began, but for the moment before the program's packages were
// ready.
var processStart = time.Now()

// Start starts a watchdog. Close it when the loop has ended.
func Start(ctx context.Context, o Options) (*Watchdog, error) {
	began := time.Now()
	return start(ctx, o, func() time.Duration { return time.Since(began) })
}

// start starts a watchdog with a monotonic clock.
func start(ctx context.Context, o Options, now func() time.Duration) (*Watchdog, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	w := &Watchdog{opts: o, board: o.Board, now: now, stack: make([]frame, 1, maxNested), hooks: map[string]*pace{},
		done: make(chan struct{}), left: make(chan struct{})}
	w.record = status.Record{Version: status.Version, Run: o.Run, Host: o.Host, Hosts: o.Hosts, Name: o.Name, PID: os.Getpid(),
		Machine: status.Machine(), State: status.Running}
	w.life.Began = o.clock().Add(-time.Since(processStart))
	w.verdict, w.cancel = context.WithCancelCause(context.Background())
	if o.Place != "" {
		board, err := status.Open(ctx, o.Place)
		if err != nil {
			return nil, err
		}
		w.board, w.owned = board, true
	}
	go w.watch()
	return w, nil
}

// turn says that the goroutine which takes the steps does something else now, and what else began is
// not what it waits for. It is called under mu.
func (w *Watchdog) turn(f frame) {
	now := w.passed()
	w.observe(&w.stack[0], now)
	w.stack = w.stack[:1]
	w.stack[0] = f
}

// passed adds the time since the last mark to the activity under way. It is called under mu.
func (w *Watchdog) passed() (now time.Duration) {
	now = w.now()
	top := &w.stack[len(w.stack)-1]
	if d := now - w.mark; d > 0 {
		top.own += d
		w.sums[top.kind] += d
	}
	w.mark = now
	w.marks++
	return now
}

// Do says that the goroutine which takes the steps does something else now: the activity before
// has ended. It allocates nothing. The name says more, such as which hook; it may be empty.
func (w *Watchdog) Do(kind Activity, name string) {
	w.mu.Lock()
	w.turn(frame{kind: kind, name: name})
	w.record.Turn++
	w.mu.Unlock()
}

// Step says that a step was taken or launched, and that the next one begins. It allocates nothing.
func (w *Watchdog) Step() {
	w.mu.Lock()
	w.turn(frame{})
	w.record.Step++
	w.record.Turn = 0
	w.mu.Unlock()
}

// Begin says that an activity begins within the one under way, and end that it has ended. Of
// activities of several goroutines the one that began last counts.
func (w *Watchdog) Begin(kind Activity, name string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed()
	if len(w.stack) == maxNested {
		return func() {}
	}
	w.begun++
	id := w.begun
	w.stack = append(w.stack, frame{kind: kind, name: name, id: id})
	return func() { w.end(id) }
}

// end ends an activity, and those within it.
func (w *Watchdog) end(id int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	depth := slices.IndexFunc(w.stack, func(f frame) bool { return f.id == id })
	if depth < 1 {
		return // it was ended
	}
	now := w.passed()
	for i := len(w.stack) - 1; i >= depth; i-- {
		w.observe(&w.stack[i], now)
	}
	w.stack = w.stack[:depth]
}

// observe learns from an activity that has ended.
func (w *Watchdog) observe(f *frame, now time.Duration) {
	if f.kind >= activity.Kinds {
		return
	}
	w.took[f.kind] = f.own
	if f.kind == activity.Other || now-w.looked > w.opts.paused() {
		return // nobody has looked lately: the process was stopped, or had no processor
	}
	w.pace(f).observe(f.own, now)
	switch f.kind {
	case activity.Compile: // another program
		w.paces[activity.Launch], w.paces[activity.Result] = pace{}, pace{}
	case activity.Setup: // another pass
		w.paces[activity.Input] = pace{}
	}
}

// pace is that of an activity. Hooks have one each.
func (w *Watchdog) pace(f *frame) *pace {
	if f.kind != activity.Hook || len(w.hooks) >= 256 {
		return &w.paces[f.kind]
	}
	p := w.hooks[f.name]
	if p == nil {
		p = &pace{}
		w.hooks[f.name] = p
	}
	return p
}

// At says how many steps were taken, as after a resume, and how many there are in all; 0 is not
// known.
func (w *Watchdog) At(step, steps int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Step, w.record.Steps = step, steps
	if !w.resumed {
		w.resumed, w.life.From = true, step
	}
}

// Loss says that the loss after a step was read.
func (w *Watchdog) Loss(step int64, loss float64) {
	n := status.Number(loss)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Loss, w.record.LossStep = &n, step
}

// Saved says that there is a checkpoint of a step.
func (w *Watchdog) Saved(step int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Checkpoint = step
}

// Trouble says what fails without ending the run, such as a save on a full disk; nil says that
// nothing does any more. The other hosts are told.
func (w *Watchdog) Trouble(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Trouble = short(err)
}

// Context returns a context that ends with ctx, or by a [*StuckError] when the run does not go on.
// What waits in it tells the watchdog of compilations and exchanges. stop releases it.
func (w *Watchdog) Context(ctx context.Context) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(activity.With(ctx, w))
	free := context.AfterFunc(w.verdict, func() { cancel(w.Err()) })
	return watched, func() {
		free()
		cancel(nil)
	}
}

// Err returns the [*StuckError] by which the watchdog ended its contexts, or nil.
func (w *Watchdog) Err() error { return context.Cause(w.verdict) }

// Suspected returns the [*StuckError] that there would be soon, if it is sure, or was a moment ago,
// that a host does not go on; otherwise nil. Where a wait fails then, that is why: the error may
// be the plugin's, as another host has given up first.
func (w *Watchdog) Suspected() error {
	if err := w.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	found, recent := w.suspected, w.now()-w.suspectAt < 2*w.opts.Floor
	w.mu.Unlock()
	if len(found) == 0 || !recent {
		return nil
	}
	return w.stuckError(w.look(), found)
}

// closeWait bounds the last record's way.
const closeWait = 2 * time.Second

// Close ends the watchdog, and host 0 logs where the time of the run has gone. The other hosts are
// told that this one has left the loop, and why: err is the run's error, or nil.
func (w *Watchdog) Close(err error) error {
	w.mu.Lock()
	if w.record.State == status.Ended {
		w.mu.Unlock()
		return nil
	}
	w.record.State, w.record.Error = status.Ended, short(err)
	if stuck := (*StuckError)(nil); errors.As(err, &stuck) {
		w.record.Findings = stuck.Findings // which the others go by
	}
	w.mu.Unlock()
	if h := w.History(); w.opts.Host == 0 && h.To > 0 {
		w.opts.Logger.Info("watchdog: " + h.Shares().String())
	}
	close(w.done)
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	select {
	case <-w.left:
	case <-timer.C: // a place that does not answer does not hold the run up
	}
	return nil
}

// short is the text of an error, bounded for a record; nil has none.
func short(err error) string {
	if err == nil {
		return ""
	}
	return cut(err.Error())
}

func cut(text string) string {
	const most = 600
	if len(text) > most {
		return text[:most] + " ..."
	}
	return text
}
