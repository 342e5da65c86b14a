package fit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/internal/engine/fault"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// Run takes training steps on the batches of data, one after the other, until Options.Steps are
// taken, the data has ended, or a hook stops the run. It is what Keras's Model.fit and an Estimator
// do in TensorFlow; their callbacks are hooks.
//
// The loop does not wait for a step: it launches the next one while the devices work on those
// before, as far as the strategy lets it. It waits for a step whose loss is read, at a record. A
// step at which no hook is due costs the loop no allocation.
//
// When ctx ends, as by a notice of package interrupt, Run waits for the steps under way, saves a
// checkpoint if there is a [Checkpoint] hook, ends the hooks, and returns an [*interrupt.Error],
// which matches the context's error and has the process's exit code. A save that is under way is
// finished first.
//
// With several processes every process calls Run with the same options, hooks and data. After each
// record the processes agree on whether to go on: an end that one of them wants is the end of all
// of them after the same step. That costs a launch at each record. Between records that are further
// apart they tell each other of interrupts about twice a second, without waiting
// ([interrupt.Agreement]): an interrupt of one ends all of them after the same step within a
// second, or two steps.
//
// Errors: before anything was done, one of kind ValueError for options, hooks or data that do not
// fit, of kind NotFoundError for a metric that a hook waits for and nothing measures, and
// [ErrResume]; of kind OutOfRangeError for data that ends before Options.Steps;
// [*train.NonFiniteError], [*interrupt.Error], [ErrWrite], [ErrSave] and [*errkind.PanicError];
// those of steps, data and hooks, which the text places. Several are joined. The variables stay on
// the devices.
func Run(ctx context.Context, step *train.Step, data Data, o Options, hooks ...Hook) (Result, error) {
	start := time.Now()
	r := &run{options: o, hooks: hooks, data: data, train: step, log: o.Logger}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	err := r.prepare(ctx)
	if err == nil {
		ctx, err = r.startWatch(ctx)
	}
	if err == nil {
		err = r.all(ctx)
	}
	if r.source != nil {
		r.does(watchdog.Setup, "closing the data")
		err = errors.Join(err, r.source.close())
	}
	if r.agreement != nil {
		err = errors.Join(err, r.agreement.Close())
	}
	err = r.endWatch(err)
	r.result.Seconds = time.Since(start).Seconds()
	return r.result, err
}

// run is one call of Run.
type run struct {
	options  Options
	hooks    []Hook
	data     Data
	train    *train.Step
	strategy *strategy.TPUStrategy
	log      *slog.Logger
	saver    *saver // nil without a Checkpoint hook
	// agreement is that of several processes on an interrupt between two records.
	agreement *interrupt.Agreement
	// watch and dog are of a Watch hook, nil without one. firmly is the context that ends by the dog
	// alone; release and unwatch release the contexts.
	watch            *watchdog.Options
	dog              *watchdog.Watchdog
	firmly           context.Context
	release, unwatch func()
	// replays is the interval of a Replay hook, and clean the last step that was replayed without a
	// difference, or from which this life went on.
	replays Every
	clean   int64
	// doing is what the run does, and lost who the watchdog knows to be the reason of its failure.
	doing watchdog.Activity
	lost  error

	state  State
	source source
	at     position // after the last step that was taken
	first  *batch   // that was read ahead, to compile for
	loss   *strategy.Mirrored
	due    int64 // the next step with something to do
	record int64 // the last record
	saved  int64 // the step of the last checkpoint
	// savesRun is true while the checkpoint of the Checkpoint hook is saved, and not one of another hook
	// or on the hosts.
	savesRun bool
	// savedNear is that of the last checkpoint on the hosts.
	savedNear int64
	// lastMetrics are the last values of all metrics when the checkpoint was saved that the run resumed
	// from.
	lastMetrics []Metric
	// pending are the metrics of a step whose hooks have not run, as they cannot be read again.
	pending []Metric
	begun   int  // hooks whose End is to run
	agreed  bool // the processes are at the same place
	// accepted reports that begin succeeded: the run may take steps.
	accepted bool
	result   Result
}

// batch is what a source returned.
type batch struct {
	args []any
	rows int
}

// prepare checks what can be checked before anything is done.
func (r *run) prepare(ctx context.Context) error {
	if r.train == nil {
		return option("step", "make it with train.New", "no training step: a nil pointer")
	}
	r.strategy = r.train.Strategy()
	r.agreement = interrupt.NewAgreement(r.strategy)
	if err := strategy.RefuseTracing(ctx, "fit", fault.InsteadOfRunning); err != nil {
		return err
	}
	if r.data.open == nil {
		return option("data", "give Dataset, Distributed, Feed or Batches", "no data: the zero Data")
	}
	if err := check(r.options, r.hooks, r.own()); err != nil {
		return err
	}
	r.options.Every, r.options.Epochs = cmp.Or(r.options.Every, defaultEvery), cmp.Or(r.options.Epochs, 1)
	if r.data.once && r.options.Epochs > 1 {
		return option("option Epochs", "give the dataset by Dataset", "%d passes over a feed, which is one", r.options.Epochs)
	}
	for i := range r.hooks {
		h := &r.hooks[i]
		r.saver, r.watch, r.replays = cmp.Or(h.saver, r.saver), cmp.Or(h.watch, r.watch), cmp.Or(h.replay, r.replays)
		if h.reset != nil {
			h.reset()
		}
	}
	r.state = State{run: r, first: r.strategy.Process() == 0, steps: r.options.Steps, warn: r.log.Warn}
	r.at, r.record, r.saved, r.savedNear = position{}, -1, -1, -1
	return nil
}

// all takes the run from its beginning to its end.
func (r *run) all(ctx context.Context) error {
	err := r.begin(ctx)
	if r.accepted = err == nil; r.accepted && r.dog != nil {
		r.dog.At(r.state.step, r.state.steps)
	}
	if err == nil && r.pending != nil {
		err = r.after(ctx)
	}
	if err == nil {
		err = r.loop(ctx)
	}
	doing := r.doing
	if !r.state.began.IsZero() {
		err = errors.Join(err, r.settle(ctx, err))
		r.result.TrainSeconds = r.state.Elapsed().Seconds()
	}
	if err == nil {
		err = r.unmeasured()
	}
	if err == nil {
		err = r.complete(ctx)
	}
	if r.saver != nil {
		r.saver.hurry(r, err)
	}
	r.blame(err, doing)
	saved := r.last(ctx, err)
	if r.saver != nil {
		if err == nil && saved != nil {
			r.agreed = false
			r.saver.hurry(r, saved)
		}
		r.saver.endNear(ctx, r, err)
		saved = errors.Join(saved, r.saver.end(r))
	}
	if err == nil && saved != nil { // which the processes do not agree on
		r.agreed = false
		r.blame(saved, r.doing)
	}
	if stopped, ok := errors.AsType[*interrupt.Error](err); ok && r.saver != nil && saved == nil && r.saved > 0 && r.saved == r.state.step {
		stopped.Directory = r.saver.path
	}
	err = errors.Join(err, saved)
	for i := range r.hooks[:r.begun] {
		if end := r.hooks[i].End; end != nil {
			err = errors.Join(err, r.call(&r.hooks[i], func() error {
				r.does(watchdog.Hook, r.hooks[i].Name)
				return end(context.WithoutCancel(ctx), &r.state, err)
			}))
		}
	}
	r.result.Step, r.result.Resumed, r.result.Taken = r.state.step, r.state.resumed, r.state.step-r.state.resumed
	r.result.Rows, r.result.Passes = r.state.rows, r.state.passes
	r.result.Metrics, r.result.Stopped = r.state.latest, r.state.stop
	return err
}

// unmeasured returns the error of a hook that waited for a metric that nothing published, of a run
// in which that could not be known beforehand.
func (r *run) unmeasured() error {
	if len(r.state.latest) == 0 {
		return nil // no record
	}
	known := r.state.names()
	for i := range r.hooks {
		for _, name := range r.hooks[i].Needs {
			if _, measured := find(r.state.latest, name); measured || slices.Contains(known, name) {
				continue
			}
			for _, m := range r.state.latest {
				if !slices.Contains(known, m.Name) {
					known = append(known, m.Name)
				}
			}
			return noMetric(r.hooks[i].Name, name, known)
		}
	}
	return nil
}

// settle waits for the steps under way, so that the time of the run is known, and what failed in
// them.
func (r *run) settle(ctx context.Context, failed error) error {
	if r.loss == nil || failed != nil && r.saver == nil {
		return nil
	}
	r.does(watchdog.Result, "the last step")
	if err := r.loss.Ready(r.firm(ctx)); err != nil && failed == nil {
		return r.failed("waiting for the last step", r.state.step, err)
	}
	return nil
}

// loop takes the steps.
func (r *run) loop(ctx context.Context) error {
	for r.state.stop == "" && (r.options.Steps == 0 || r.state.step < r.options.Steps) {
		if ctx.Err() != nil && !r.several() {
			return r.interrupted(ctx, nil)
		}
		r.does(watchdog.Input, "")
		args, rows, err := r.next(ctx)
		if err == io.EOF {
			more, err := r.pass(ctx)
			if err != nil {
				return err
			}
			if more {
				continue
			}
			return r.ended(ctx)
		}
		if err != nil {
			return r.failed("reading the batch", r.state.step+1, r.orInterrupted(ctx, err))
		}
		r.agreed = false
		r.does(watchdog.Launch, "")
		loss, err := r.take(r.work(ctx), args)
		if err != nil {
			return r.failed("taking the step", r.state.step+1, r.orInterrupted(ctx, err))
		}
		if r.state.began.IsZero() {
			r.state.began = time.Now()
		}
		r.loss = loss
		r.state.step++
		if r.dog != nil {
			r.dog.Step()
		}
		r.state.rows += int64(rows)
		r.at.Taken++
		r.at.Input = r.source.state()
		if r.state.step >= r.due {
			if err := r.after(ctx); err != nil {
				return err
			}
		} else if err := r.vote(ctx); err != nil {
			return r.failed("asking the other processes", r.state.step, err)
		}
	}
	return nil
}

// next returns the next batch.
func (r *run) next(ctx context.Context) ([]any, int, error) {
	if b := r.first; b != nil {
		r.first = nil
		return b.args, b.rows, nil
	}
	return r.source.next(r.work(ctx))
}

// work is the context of what all processes do together. With several processes one that is
// interrupted goes on until all know.
func (r *run) work(ctx context.Context) context.Context {
	if r.several() {
		return r.firm(ctx)
	}
	return ctx
}

// pass begins the next pass over the data, if there is to be one.
func (r *run) pass(ctx context.Context) (more bool, err error) {
	if r.at.Taken == 0 {
		return false, &errkind.Fault{Op: "fit: data", Reason: "it has no batch", Class: errkind.OutOfRangeError,
			Hint: "see whether the files or the filters of the dataset leave anything, and whether a batch is larger than the data"}
	}
	if r.state.passes >= r.options.Epochs {
		return false, nil
	}
	err, r.source = r.source.close(), nil
	if err != nil {
		return false, r.failed("closing the data", r.state.step+1, err)
	}
	return true, r.open(ctx, position{Pass: r.at.Pass + 1})
}

// open opens a pass at a position.
func (r *run) open(ctx context.Context, at position) (err error) {
	r.does(watchdog.Setup, "opening the data")
	if r.source, err = r.data.open(r.work(ctx), pass{strategy: r.strategy, arguments: r.train.Arguments(), at: at}); err != nil {
		r.source = nil
		return r.failed("opening the data", r.state.step+1, r.orInterrupted(ctx, err))
	}
	r.at = at
	r.state.passes = at.Pass + 1
	return nil
}

// ended ends a run whose data has ended.
func (r *run) ended(ctx context.Context) error {
	if r.options.Steps > 0 {
		return &errkind.Fault{Match: errShort, Reason: fmt.Sprintf("%d of %d steps were taken", r.state.step, r.options.Steps),
			Hint: "repeat the dataset (Repeat(-1) after its Shuffle), or ask for Epochs instead of Steps"}
	}
	if r.record == r.state.step || r.loss == nil {
		return nil
	}
	r.due = r.state.step
	r.state.steps = r.state.step
	return r.after(ctx)
}

// several reports whether several processes take part.
func (r *run) several() bool { return r.strategy.NumProcesses() > 1 }

// failed returns the error of a step, or the interruption that it is.
func (r *run) failed(doing string, step int64, err error) error {
	if _, ok := err.(*interrupt.Error); ok {
		return err
	}
	return &errkind.Fault{Op: fmt.Sprintf("fit: step %d: %s", step, doing), Err: err, Class: errkind.Or(err, errkind.RuntimeError)}
}

// orInterrupted returns the interruption if that is why something failed.
func (r *run) orInterrupted(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Cause(ctx))) {
		return r.interrupted(ctx, nil)
	}
	return err
}

// call calls a function of a hook. A panic is an error.
func (r *run) call(h *Hook, f func() error) error {
	err := func() (err error) {
		defer errkind.Recover("fit: it", &err)
		return f()
	}()
	switch e := err.(type) {
	case nil:
		return nil
	case *errkind.Fault:
		if e.Match == ErrWrite || e.Match == ErrSave {
			return err // which says more
		}
	case *train.NonFiniteError:
		return err
	}
	return &errkind.Fault{Op: fmt.Sprintf("fit: hook %s after step %d", h.Name, r.state.step), Err: err, Class: errkind.Or(err, errkind.RuntimeError)}
}
