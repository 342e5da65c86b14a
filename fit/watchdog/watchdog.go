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

// Activity is a kind of activity of a host, such as waiting for input or saving a checkpoint.
type Activity = activity.Kind

// The activities, for [Watchdog.SetActivity] and [Watchdog.BeginNested].
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

// activityFrame is an activity on the stack of current activities.
type activityFrame struct {
	kind     Activity
	name     string
	duration time.Duration // duration until countedUntil, without nested activities
}

// activityTimes contains the total time of each kind of activity.
type activityTimes [activity.NumKinds]time.Duration

type sample struct {
	time  time.Duration
	step  int64
	times activityTimes
}

// Watchdog watches the steps of a host. Its methods are safe for concurrent use, but only the
// goroutine that runs the steps may call SetActivity and CompleteStep.
type Watchdog struct {
	opts         Options
	records      *RecordStore    // or nil
	stuckContext context.Context // ended by the StuckError
	cancel       context.CancelCauseFunc
	openContext  context.Context // ended by Close
	close        context.CancelFunc
	storeResults chan storeResult // results of accesses to the record store
	monitorDone  chan struct{}    // closed after the last report
	recordsDone  chan struct{}    // closed after the last record is written

	mu                       sync.Mutex       // guards the following fields
	stack                    []*activityFrame // the first frame belongs to SetActivity
	lastCheck                time.Duration
	stoppedTime              time.Duration // total time in which the process was stopped
	countedUntil             time.Duration // time up to which times are counted
	progress                 int64
	record                   Record // fields that other calls set
	stats                    map[activityKey]durationStats
	totalTimes, lastTimes    activityTimes
	olderSample, newerSample sample    // samples for rates and time fractions
	suspected                []Finding // last certain findings, found at suspectedAt
	suspectedAt              time.Duration
	pastHistory              *goodput.History // history of earlier attempts, on host 0
	history                  goodput.History  // start of this attempt
	isStepSet                bool             // history.FirstStep is known
	isWithdrawn              bool             // the records of the earlier attempt are restored
}

// maxNested limits the depth of nested activities.
const maxNested = 32

// processStart approximates the start of this process.
var processStart = time.Now()

// Start starts a watchdog. The caller must call Close when the loop has ended.
func Start(ctx context.Context, o Options) (*Watchdog, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	w := &Watchdog{opts: o, records: o.RecordStore, stack: make([]*activityFrame, 1, maxNested),
		stats:        map[activityKey]durationStats{},
		storeResults: make(chan storeResult), monitorDone: make(chan struct{}), recordsDone: make(chan struct{})}
	w.stack[0] = &activityFrame{}
	w.record = Record{Version: Version, Run: o.Run, Host: o.Host, Hosts: o.Hosts, Name: o.Name, PID: os.Getpid(),
		Machine: machineID(), State: Running}
	w.history.StartTime = o.wallClock().Add(-time.Since(processStart))
	w.stuckContext, w.cancel = context.WithCancelCause(context.Background())
	w.openContext, w.close = context.WithCancel(context.Background())
	if o.Dir != "" {
		store, err := OpenRecordStore(ctx, o.Dir)
		if err != nil {
			return nil, err
		}
		w.records = store
	}
	go func() {
		exits := w.monitor()
		close(w.monitorDone)
		if exits {
			_ = w.Close(w.Err())
			w.opts.Exit(ExitCode)
		}
	}()
	go func() {
		if w.records != nil {
			w.exchangeRecords()
		}
		<-w.monitorDone
		close(w.recordsDone)
	}()
	return w, nil
}

// now returns the time since the start, without the time in which the process was stopped. It stops
// advancing if recordCheck was not called for recordInterval. The caller must hold mu.
func (w *Watchdog) now() time.Duration {
	return min(w.opts.sinceStart(), w.lastCheck+w.opts.recordInterval()) - w.stoppedTime
}

// recordCheck measures how long the process was stopped since the previous check, and returns now.
func (w *Watchdog) recordCheck() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	since := w.opts.sinceStart()
	w.stoppedTime += max(since-w.lastCheck-w.opts.recordInterval(), 0)
	w.lastCheck = since
	return w.now()
}

// countTime adds the time since countedUntil to the current activity and returns that activity. The
// caller must hold mu.
func (w *Watchdog) countTime() (current *activityFrame) {
	now := w.now()
	current = w.stack[len(w.stack)-1]
	current.duration += now - w.countedUntil
	w.totalTimes[current.kind] += now - w.countedUntil
	w.countedUntil = now
	return current
}

// startActivity starts the next activity of the goroutine that runs the steps, and discards its
// nested activities. The caller must hold mu.
func (w *Watchdog) startActivity(f activityFrame) {
	w.countTime()
	w.recordDuration(w.stack[0])
	*w.stack[0] = f
	w.stack = w.stack[:1]
	w.progress++
}

// SetActivity reports the start of an activity of the goroutine that runs the steps, which ends its
// previous activity. The name, for example of a hook, may be empty. SetActivity does not allocate.
func (w *Watchdog) SetActivity(kind Activity, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.startActivity(activityFrame{kind: kind, name: name})
	w.record.ActivityIndex++
}

// CompleteStep reports that a step was completed or launched, and that the next step begins. It
// does not allocate.
func (w *Watchdog) CompleteStep() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.startActivity(activityFrame{})
	w.record.Step++
	w.record.ActivityIndex = 0
}

// BeginNested reports that an activity begins within the current one. Call end when the activity
// has ended; end also ends the activities within it. If several goroutines begin activities, the
// latest one is current.
func (w *Watchdog) BeginNested(kind Activity, name string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.countTime()
	w.progress++
	if len(w.stack) == maxNested {
		return func() {}
	}
	f := &activityFrame{kind: kind, name: name}
	w.stack = append(w.stack, f)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		depth := slices.Index(w.stack, f)
		if depth < 0 {
			return // it has already ended
		}
		w.countTime()
		w.progress++
		for _, ended := range slices.Backward(w.stack[depth:]) {
			w.recordDuration(ended)
		}
		w.stack = w.stack[:depth]
	}
}

// SetStep sets the number of completed steps, for example after a resume, and the total number of
// steps; 0 means unknown.
func (w *Watchdog) SetStep(step, steps int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Step, w.record.Steps = step, steps
	if !w.isStepSet {
		w.isStepSet, w.history.FirstStep = true, step
	}
}

// SetLoss reports the loss of a step.
func (w *Watchdog) SetLoss(step int64, loss float64) {
	n := JSONFloat(loss)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Loss, w.record.LossStep = &n, step
}

// SetCheckpoint reports that the checkpoint of a step is complete.
func (w *Watchdog) SetCheckpoint(step int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.Checkpoint = step
}

// ReportError reports an error that does not end the run, such as a failed save on a full disk. The
// other hosts see the error in this host's record. A nil err clears it.
func (w *Watchdog) ReportError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.NonFatalError = errorText(err)
}

// window is the minimum time over which rates and time fractions are computed. The maximum is twice
// as long.
const window = 5 * time.Second

// currentRecord returns the current record of this host, and a number that changes whenever the
// host makes progress.
func (w *Watchdog) currentRecord() (r Record, moves int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	top := w.countTime()
	r = w.record
	r.Time, r.Activity, r.ActivityName = w.opts.wallClock().UTC().Round(0), top.kind.String(), truncateText(top.name)
	r.Duration, r.Timeout, r.LastDurations = top.duration.Seconds(), w.timeout(top).Seconds(),
		w.lastTimes.toMap(time.Second)
	if r.State == Running && slices.ContainsFunc(r.Findings, isFatal) {
		r.State = Stuck
	}
	if w.opts.Host == 0 {
		h := w.historyLocked()
		r.History = &h
	}
	current := sample{w.countedUntil, r.Step, w.totalTimes}
	if current.time-w.newerSample.time >= window || current.step < w.newerSample.step {
		w.olderSample, w.newerSample = w.newerSample, current
	}
	if d := current.time - w.olderSample.time; d > 0 && current.step >= w.olderSample.step {
		for k, start := range w.olderSample.times {
			current.times[k] -= start
		}
		r.Rate, r.Window, r.TimeFractions = float64(current.step-w.olderSample.step)/d.Seconds(), d.Seconds(),
			current.times.toMap(d)
	}
	return r, w.progress
}

// toMap returns a map from the names of activities to their total times, in multiples of unit. It
// omits times of 0.
func (t *activityTimes) toMap(unit time.Duration) map[string]float64 {
	result := map[string]float64{}
	for k, d := range t {
		if d > 0 {
			result[Activity(k).String()] = d.Seconds() / unit.Seconds()
		}
	}
	return result
}

// History returns the use of the run's time so far. On host 0 it includes the earlier attempts in
// the last record in Options.Dir; on other hosts it only covers this attempt.
func (w *Watchdog) History() goodput.History {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.countTime()
	return w.historyLocked()
}

// historyLocked is like History. The caller must hold mu.
func (w *Watchdog) historyLocked() goodput.History {
	h := w.history
	h.EndTime, h.LastStep, h.Seconds = w.opts.wallClock().UTC().Round(0), w.record.Step, w.totalTimes.toMap(time.Second)
	if w.pastHistory == nil {
		return h
	}
	if !w.isStepSet && h.LastStep == 0 { // the step from which this attempt resumes is not known yet
		h.FirstStep, h.LastStep = w.pastHistory.LastStep, w.pastHistory.LastStep
	}
	return w.pastHistory.Append(h)
}

// Context returns a context that is canceled with ctx, or with a [*StuckError] when the run can no
// longer continue. Compilations and exchanges under this context are reported to the watchdog. Call
// stop to release it.
func (w *Watchdog) Context(ctx context.Context) (watched context.Context, stop func()) {
	watched, cancel := context.WithCancelCause(activity.WithObserver(ctx, w.BeginNested))
	stopAfter := context.AfterFunc(w.stuckContext, func() { cancel(w.Err()) })
	return watched, func() {
		stopAfter()
		cancel(nil)
	}
}

// Err returns the [*StuckError] with which the watchdog canceled its contexts, or nil.
func (w *Watchdog) Err() error { return context.Cause(w.stuckContext) }

// SuspectedError returns a [*StuckError] if the watchdog is certain, or recently was certain, that
// a host makes no progress, and nil otherwise. It can explain a failed wait whose own error does
// not name a host.
func (w *Watchdog) SuspectedError() error {
	if err := w.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	findings, recent := w.suspected, w.now()-w.suspectedAt < 2*w.opts.MinTimeout
	w.mu.Unlock()
	if len(findings) == 0 || !recent {
		return nil
	}
	return w.stuckError(findings)
}

// closeWait limits the time that Close waits for the last record to be written.
const closeWait = 2 * time.Second

// Withdraw ends the watchdog of an attempt that was rejected before its first step, for example
// because of other settings. It restores this host's record of the earlier attempt. If there is no
// earlier record, host 0 writes a record with err, the run's error. All hosts must call Withdraw
// instead of Close.
func (w *Watchdog) Withdraw(err error) error {
	w.mu.Lock()
	w.isWithdrawn = w.record.State != Ended
	w.mu.Unlock()
	return w.closeWith(err)
}

// Close ends the watchdog. The last record of this host contains err, the error of the run, which
// may be nil, and shows that the host has left the training loop. Host 0 logs the use of the run's
// time.
func (w *Watchdog) Close(err error) error {
	if w == nil || w.close == nil {
		return nil
	}
	return w.closeWith(err)
}

func (w *Watchdog) closeWith(err error) error {
	w.mu.Lock()
	if w.record.State == Ended {
		w.mu.Unlock()
		return nil
	}
	w.record.State, w.record.Error = Ended, errorText(err)
	if stuck, ok := errors.AsType[*StuckError](err); ok {
		w.record.Findings = stuck.Findings // the other hosts use these findings
	}
	w.mu.Unlock()
	if h := w.History(); w.opts.Host == 0 && h.LastStep > 0 && !w.hasWithdrawn() {
		w.opts.Logger.Info("watchdog: " + h.Breakdown().String())
	}
	w.close()
	select {
	case <-w.recordsDone:
	case <-time.After(closeWait):
	}
	return nil
}

func (w *Watchdog) hasWithdrawn() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isWithdrawn
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return truncateText(err.Error())
}

func truncateText(text string) string {
	const limit = 600
	if len(text) > limit {
		return text[:limit] + " ..."
	}
	return text
}
