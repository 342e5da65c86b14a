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

// Activity is a kind of activity of a host, or a kind of wait.
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

// frame is a current activity.
type frame struct {
	kind Activity
	name string
	own  time.Duration // duration up to the last mark, without nested activities
}

// times contains the time of each kind of activity.
type times [activity.NumKinds]time.Duration

// sample is the progress of a host at a time.
type sample struct {
	at   time.Duration
	step int64
	sums times
}

// Watchdog watches the steps of a host. Its methods are safe for concurrent use, but only the
// goroutine that runs the steps may call Do and Step.
type Watchdog struct {
	opts    Options
	board   *Board          // or nil
	verdict context.Context // ended by the StuckError
	cancel  context.CancelCauseFunc
	open    context.Context // ended by Close
	close   context.CancelFunc
	heard   chan heard    // results of accesses to the board
	watched chan struct{} // closed after the last report
	left    chan struct{} // closed after the last record is written

	mu           sync.Mutex // guards the following fields
	stack        []*frame   // the first frame belongs to Do
	looked       time.Duration
	stopped      time.Duration // total time in which the process was stopped
	mark         time.Duration // time up to which times are counted
	moves        int64
	record       Record // fields that are known between two looks
	paces        map[activityName]pace
	sums, took   times
	older, newer sample    // samples for rates and shares
	suspected    []Finding // last sure findings, found at suspectAt
	suspectAt    time.Duration
	past         *goodput.History // history of earlier lives, on host 0
	life         goodput.History  // start of this life
	resumed      bool             // life.From is known
	withdrawn    bool             // the records of the earlier life are restored
}

// maxNested limits the depth of nested activities.
const maxNested = 32

// processStart is approximately the start of this process.
var processStart = time.Now()

// Start starts a watchdog. The caller must call Close when the loop has ended.
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

// now returns the time since the start, without times in which the process was stopped or had no
// processor. It does not advance if tick was not called for longer than the interval. The caller
// must hold mu.
func (w *Watchdog) now() time.Duration {
	return min(w.opts.since(), w.looked+w.opts.interval()) - w.stopped
}

// tick records a check of the host and returns the time.
func (w *Watchdog) tick() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	since := w.opts.since()
	w.stopped += max(since-w.looked-w.opts.interval(), 0)
	w.looked = since
	return w.now()
}

// count adds the time since the last mark to the current activity. The caller must hold mu.
func (w *Watchdog) count() (top *frame) {
	now := w.now()
	top = w.stack[len(w.stack)-1]
	top.own += now - w.mark
	w.sums[top.kind] += now - w.mark
	w.mark = now
	return top
}

// turn starts the next activity of the goroutine that runs the steps, and discards nested
// activities. The caller must hold mu.
func (w *Watchdog) turn(f frame) {
	w.count()
	w.observe(w.stack[0])
	*w.stack[0] = f
	w.stack = w.stack[:1]
	w.moves++
}

// Do reports that the goroutine which runs the steps starts an activity, and that its previous
// activity has ended. The name, for example of a hook, may be empty. Do does not allocate.
func (w *Watchdog) Do(kind Activity, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn(frame{kind: kind, name: name})
	w.record.Turn++
}

// Step reports that a step was completed or launched, and that the next step begins. Step does not
// allocate.
func (w *Watchdog) Step() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turn(frame{})
	w.record.Step++
	w.record.Turn = 0
}

// Begin reports that an activity begins within the current one. end reports the end of the activity
// and of the activities within it. If several goroutines begin activities, the one that began last
// counts.
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
			return // it has already ended
		}
		w.count()
		w.moves++
		for _, ended := range slices.Backward(w.stack[depth:]) {
			w.observe(ended)
		}
		w.stack = w.stack[:depth]
	}
}

// At sets the number of completed steps, for example after a resume, and the total number of steps,
// or 0 if it is not known.
func (w *Watchdog) At(step, steps int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Step, w.record.Steps = step, steps
	if !w.resumed {
		w.resumed, w.life.From = true, step
	}
}

// Loss reports the loss of a step.
func (w *Watchdog) Loss(step int64, loss float64) {
	n := Number(loss)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Loss, w.record.LossStep = &n, step
}

// Saved reports that the checkpoint of a step exists.
func (w *Watchdog) Saved(step int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Checkpoint = step
}

// Trouble reports an error that does not end the run, such as a failed save on a full disk. With
// nil the trouble is over. The other hosts see it in the record.
func (w *Watchdog) Trouble(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Trouble = short(err)
}

// window is the minimum time over which rates and shares are computed. The maximum is twice as
// long.
const window = 5 * time.Second

// look returns the current record of this host, and a number that changes whenever the host makes
// progress.
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

// per returns the times that are not zero, in units.
func (t *times) per(unit time.Duration) map[string]float64 {
	all := map[string]float64{}
	for k, d := range t {
		if d > 0 {
			all[Activity(k).String()] = d.Seconds() / unit.Seconds()
		}
	}
	return all
}

// History returns the use of the run's time so far. On host 0 it includes the earlier lives, as far
// as they are known from the last record in Options.Place. On other hosts it only covers this life.
func (w *Watchdog) History() goodput.History {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count()
	return w.history()
}

// history is History without locking. The caller must hold mu.
func (w *Watchdog) history() goodput.History {
	h := w.life
	h.Seen, h.To, h.Seconds = w.opts.wall().UTC().Round(0), w.record.Step, w.sums.per(time.Second)
	if w.past == nil {
		return h
	}
	if !w.resumed && h.To == 0 { // the step from which this life resumes is not known yet
		h.From, h.To = w.past.To, w.past.To
	}
	return w.past.Append(h)
}

// Context returns a context that ends with ctx, or with a [*StuckError] when the run can no longer
// continue. Compilations and exchanges that use the context are reported to the watchdog. stop
// releases the context.
func (w *Watchdog) Context(ctx context.Context) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(activity.WithObserver(ctx, w.Begin))
	free := context.AfterFunc(w.verdict, func() { cancel(w.Err()) })
	return watched, func() {
		free()
		cancel(nil)
	}
}

// Err returns the [*StuckError] with which the watchdog ended its contexts, or nil.
func (w *Watchdog) Err() error { return context.Cause(w.verdict) }

// Suspected returns the [*StuckError] that is imminent if the watchdog is sure, or recently was
// sure, that a host makes no progress; otherwise it returns nil. It explains a failed wait whose
// own error does not name a host, for example because another host has given up first.
func (w *Watchdog) Suspected() error {
	if err := w.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	found, recent := w.suspected, w.now()-w.suspectAt < 2*w.opts.MinTimeout
	w.mu.Unlock()
	if len(found) == 0 || !recent {
		return nil
	}
	return w.stuckError(found)
}

// closeWait limits the time for writing the last record.
const closeWait = 2 * time.Second

// Withdraw ends the watchdog of a life that was refused before its first step, such as a resume
// with other settings. It restores this host's record of the earlier life. If there was none, host
// 0 leaves a record with err, the run's error, and the other hosts leave none. All hosts must call
// it instead of Close.
func (w *Watchdog) Withdraw(err error) error {
	w.mu.Lock()
	w.withdrawn = w.record.State != Ended
	w.mu.Unlock()
	return w.end(err)
}

// Close ends the watchdog. The last record tells the other hosts that this host has left the loop,
// and the error err of the run, which may be nil. Host 0 logs the use of the run's time.
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
		w.record.Findings = stuck.Findings // the other hosts use these findings
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

// short returns the text of an error, truncated for a record.
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
