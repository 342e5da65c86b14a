package watchdog

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/fit/goodput"
	"github.com/tpustrategy/tpustrategy/internal/activity"
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
	kind Activity
	name string
	own  time.Duration // without what is nested in it, up to the last mark
}

// times are those that went into each kind of activity.
type times [activity.Kinds]time.Duration

// sample is where a host was at a time.
type sample struct {
	at   time.Duration
	step int64
	sums times
}

// Watchdog watches the steps of a host. Its methods are safe for concurrent use, but Do and Step
// are those of the goroutine that takes the steps.
type Watchdog struct {
	opts    Options
	board   *Board          // or nil
	verdict context.Context // which the StuckError ends
	cancel  context.CancelCauseFunc
	open    context.Context // which Close ends
	close   context.CancelFunc
	heard   chan heard    // what the place of the records said
	watched chan struct{} // closed when nothing is reported any more
	left    chan struct{} // closed when the last record is put, too

	mu           sync.Mutex // guards what follows
	stack        []*frame   // the first one is Do's
	looked       time.Duration
	stopped      time.Duration // for how long the process was, in all
	mark         time.Duration // up to which the times are counted
	moves        int64
	record       Record // what is known between two looks
	paces        map[activityName]pace
	sums, took   times
	older, newer sample    // between which rates and shares are taken
	suspected    []Finding // the last that were sure, and when
	suspectAt    time.Duration
	past         *goodput.History // of the lives before, on host 0
	life         goodput.History  // this one's start
	resumed      bool             // life.From is known
	withdrawn    bool             // the records of the life before are put back
}

// maxNested bounds the activities within each other.
const maxNested = 32

// processStart is when this process began, but for the moment before the program's packages were
// ready.
var processStart = time.Now()

// Start starts a watchdog. Close it when the loop has ended.
func Start(ctx context.Context, o Options) (*Watchdog, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	w := &Watchdog{opts: o, board: o.Board, stack: make([]*frame, 1, maxNested), paces: map[activityName]pace{},
		heard: make(chan heard), watched: make(chan struct{}), left: make(chan struct{})}
	w.stack[0] = &frame{}
	w.record = Record{Version: Version, Run: o.Run, Host: o.Host, Hosts: o.Hosts, Name: o.Name, PID: os.Getpid(), Machine: machine(), State: Running}
	w.life.Began = o.wall().Add(-time.Since(processStart))
	w.verdict, w.cancel = context.WithCancelCause(context.Background())
	w.open, w.close = context.WithCancel(context.Background())
	if o.Place != "" {
		board, err := Open(ctx, o.Place)
		if err != nil {
			return nil, err
		}
		w.board = board
	}
	go func() {
		exits := w.watch()
		close(w.watched)
		if exits {
			_ = w.Close(w.Err())
			w.opts.Exit(ExitCode)
		}
	}()
	go func() {
		if w.board != nil {
			w.talk()
		}
		<-w.watched
		close(w.left)
	}()
	return w, nil
}

// now is the time since the start, but for times in which the process was stopped, by a signal or
// with its machine, or had no processor: it stands still when nobody has looked for a while. It is
// called under mu.
func (w *Watchdog) now() time.Duration {
	return min(w.opts.since(), w.looked+w.opts.interval()) - w.stopped
}

// tick says that somebody looks, and returns the time.
func (w *Watchdog) tick() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	since := w.opts.since()
	w.stopped += max(since-w.looked-w.opts.interval(), 0)
	w.looked = since
	return w.now()
}

// count adds the time since the last mark to the activity under way. It is called under mu.
func (w *Watchdog) count() (top *frame) {
	now := w.now()
	top = w.stack[len(w.stack)-1]
	top.own += now - w.mark
	w.sums[top.kind] += now - w.mark
	w.mark = now
	return top
}

// turn says that the goroutine which takes the steps does something else now, and what else began is
// not what it waits for. It is called under mu.
func (w *Watchdog) turn(f frame) {
	w.count()
	w.observe(w.stack[0])
	*w.stack[0] = f
	w.stack = w.stack[:1]
	w.moves++
}

// Do says that the goroutine which takes the steps does something else now: the activity before
// has ended. It allocates nothing. The name says more, such as which hook; it may be empty.
func (w *Watchdog) Do(kind Activity, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn(frame{kind: kind, name: name})
	w.record.Turn++
}

// Step says that a step was taken or launched, and that the next one begins. It allocates nothing.
func (w *Watchdog) Step() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn(frame{})
	w.record.Step++
	w.record.Turn = 0
}

// Begin says that an activity begins within the one under way, and end that it has ended, with those
// within it. Of activities of several goroutines the one that began last counts.
func (w *Watchdog) Begin(kind Activity, name string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count()
	w.moves++
	if len(w.stack) == maxNested {
		return func() {}
	}
	f := &frame{kind: kind, name: name}
	w.stack = append(w.stack, f)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		depth := slices.Index(w.stack, f)
		if depth < 0 {
			return // it was ended
		}
		w.count()
		w.moves++
		for _, ended := range slices.Backward(w.stack[depth:]) {
			w.observe(ended)
		}
		w.stack = w.stack[:depth]
	}
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
	n := Number(loss)
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

// window is the least time over which rates and shares are taken; they are of less than two.
const window = 5 * time.Second

// look returns what there is to say of this host now, and a number that changes when it moves.
func (w *Watchdog) look() (r Record, moves int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	top := w.count()
	r = w.record
	r.Time, r.Doing, r.Detail = w.opts.wall().UTC().Round(0), top.kind.String(), bounded(top.name)
	r.For, r.Bound, r.Took = top.own.Seconds(), w.bound(top).Seconds(), w.took.per(time.Second)
	if r.State == Running && slices.ContainsFunc(r.Findings, stops) {
		r.State = Stuck
	}
	if w.opts.Host == 0 {
		h := w.history()
		r.History = &h
	}
	here := sample{w.mark, r.Step, w.sums}
	if here.at-w.newer.at >= window || here.step < w.newer.step {
		w.older, w.newer = w.newer, here
	}
	if d := here.at - w.older.at; d > 0 && here.step >= w.older.step {
		for k, before := range w.older.sums {
			here.sums[k] -= before
		}
		r.Rate, r.Window, r.Shares = float64(here.step-w.older.step)/d.Seconds(), d.Seconds(), here.sums.per(d)
	}
	return r, w.moves
}

// per are the times of the activities that took any, in units.
func (t *times) per(unit time.Duration) map[string]float64 {
	all := map[string]float64{}
	for k, d := range t {
		if d > 0 {
			all[Activity(k).String()] = d.Seconds() / unit.Seconds()
		}
	}
	return all
}

// History says where the time of the run has gone so far, over all of its lives as far as host 0
// knows them by its last record in Options.Place; elsewhere it is that of this life.
func (w *Watchdog) History() goodput.History {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count()
	return w.history()
}

// history is History. It is called under mu.
func (w *Watchdog) history() goodput.History {
	h := w.life
	h.Seen, h.To, h.Seconds = w.opts.wall().UTC().Round(0), w.record.Step, w.sums.per(time.Second)
	if w.past == nil {
		return h
	}
	if !w.resumed && h.To == 0 { // it is not known yet from where this life goes on
		h.From, h.To = w.past.To, w.past.To
	}
	return w.past.Then(h)
}

// Context returns a context that ends with ctx, or by a [*StuckError] when the run does not go on.
// What waits in it tells the watchdog of compilations and exchanges. stop releases it.
func (w *Watchdog) Context(ctx context.Context) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(activity.With(ctx, w.Begin))
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
	return w.stuckError(found)
}

// closeWait bounds the last record's way: a place that does not answer does not hold the run up.
const closeWait = 2 * time.Second

// Withdraw ends the watchdog of a life that was refused before it took a step, such as a resume with
// other settings: it puts this host's record of the life before back. If there was none, host 0 leaves
// a record with err, the run's error, and the other hosts leave none. All hosts call it in the place
// of Close.
func (w *Watchdog) Withdraw(err error) error {
	w.mu.Lock()
	w.withdrawn = w.record.State != Ended
	w.mu.Unlock()
	return w.end(err)
}

// Close ends the watchdog, and host 0 logs where the time of the run has gone. The other hosts are
// told that this one has left the loop, and why: err is the run's error, or nil.
func (w *Watchdog) Close(err error) error {
	if w == nil || w.close == nil {
		return nil
	}
	return w.end(err)
}

func (w *Watchdog) end(err error) error {
	w.mu.Lock()
	if w.record.State == Ended {
		w.mu.Unlock()
		return nil
	}
	w.record.State, w.record.Error = Ended, short(err)
	if stuck, ok := errors.AsType[*StuckError](err); ok {
		w.record.Findings = stuck.Findings // which the others go by
	}
	w.mu.Unlock()
	if h := w.History(); w.opts.Host == 0 && h.To > 0 && !w.isWithdrawn() {
		w.opts.Logger.Info("watchdog: " + h.Shares().String())
	}
	w.close()
	select {
	case <-w.left:
	case <-time.After(closeWait):
	}
	return nil
}

func (w *Watchdog) isWithdrawn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.withdrawn
}

// short is the text of an error, bounded for a record; nil has none.
func short(err error) string {
	if err == nil {
		return ""
	}
	return bounded(err.Error())
}

func bounded(text string) string {
	const most = 600
	if len(text) > most {
		return text[:most] + " ..."
	}
	return text
}
