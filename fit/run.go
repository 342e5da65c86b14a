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

// Run runs training steps on the batches of data until Options.Steps is reached, the data ends, or
// a hook stops the run. It corresponds to Keras's Model.fit and to the training of an Estimator in
// TensorFlow; hooks correspond to their callbacks.
//
// The loop does not wait for a step: it launches the next step while the devices execute the
// earlier ones, as far as the strategy allows. At a record it waits for the step whose loss it
// reads. The loop allocates nothing at a step without a due hook.
//
// When ctx ends, for example by a notice of package interrupt, Run waits for the launched steps,
// saves a checkpoint if there is a [Checkpoint] hook, ends the hooks, and returns an
// [*interrupt.Error], which matches the context's error and contains the exit code of the process.
// A running save is completed first.
//
// With several processes every process must call Run with the same options, hooks and data. After
// each record the processes agree on whether to continue, so an error or a stop in one process ends
// all of them after the same step. The agreement costs one launch at each record. If the records
// are further apart, the processes also exchange interrupts about twice a second, without waiting
// ([interrupt.Agreement]): an interrupt of one process ends all of them after the same step, within
// a second or two steps.
//
// Errors that are returned before the first step: kind ValueError for invalid options, hooks or
// data, kind NotFoundError for a metric that a hook needs and nothing measures, and [ErrResume].
// Data that ends before Options.Steps is an error of kind OutOfRangeError. Other errors are
// [*train.NonFiniteError], [*interrupt.Error], [ErrWrite], [ErrSave], [*errkind.PanicError], and
// the errors of steps, data and hooks with the step in their text. Several errors are joined. The
// variables stay on the devices.
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
	// agreement lets several processes agree on an interrupt between two records.
	agreement *interrupt.Agreement
	// watch and dog belong to a Watch hook and are nil without one. Only the watchdog ends the
	// context firmly. release and unwatch release the contexts.
	watch            *watchdog.Options
	dog              *watchdog.Watchdog
	firmly           context.Context
	release, unwatch func()
	// replays is the interval of a Replay hook. clean is the last step that was replayed without a
	// difference, or the step from which this run resumed.
	replays Every
	clean   int64
	// doing is the current activity of the run. lost is the watchdog's error that explains a
	// failure of the run.
	doing watchdog.Activity
	lost  error

	state  State
	source source
	at     position // position after the last step
	first  *batch   // batch that was read ahead to compile the step
	loss   *strategy.Mirrored
	due    int64 // next step after which something is due
	record int64 // step of the last record
	saved  int64 // step of the last checkpoint
	// savesRun is true while the Checkpoint hook saves to its directory, as opposed to a local
	// checkpoint or the checkpoint of another hook.
	savesRun bool
	// savedNear is the step of the last local checkpoint.
	savedNear int64
	// lastMetrics are the last values of all metrics in the checkpoint from which the run resumed.
	lastMetrics []Metric
	// pending are the metrics of a step whose hooks have not run. They cannot be read again.
	pending []Metric
	begun   int  // number of hooks whose End must run
	agreed  bool // the processes are at the same place in the run
	// accepted reports that begin succeeded, so that the run may execute steps.
	accepted bool
	result   Result
}

// batch is a batch of a source.
type batch struct {
	args []any
	rows int
}

// prepare checks the arguments of Run.
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

// all executes the run from begin to the End functions of the hooks.
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
	if err == nil && saved != nil { // the processes did not agree on this error
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

// unmeasured returns an error if a hook needs a metric that nothing published. It detects the cases
// that check could not detect before the run.
func (r *run) unmeasured() error {
	if len(r.state.latest) == 0 {
		return nil // there was no record
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

// settle waits for the launched steps, for their errors and for the correct run time.
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

// next returns the batch that was read ahead, or the next batch of the source.
func (r *run) next(ctx context.Context) ([]any, int, error) {
	if b := r.first; b != nil {
		r.first = nil
		return b.args, b.rows, nil
	}
	return r.source.next(r.work(ctx))
}

// work returns the context for operations in which all processes take part. With several processes
// an interrupted process continues until all processes have agreed to stop.
func (r *run) work(ctx context.Context) context.Context {
	if r.several() {
		return r.firm(ctx)
	}
	return ctx
}

// pass begins the next pass over the data, and returns false if there is none.
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

// ended completes a run whose data has ended.
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

// several reports whether the run has several processes.
func (r *run) several() bool { return r.strategy.NumProcesses() > 1 }

// failed adds the step and the operation to an error, and returns an interruption unchanged.
func (r *run) failed(doing string, step int64, err error) error {
	if _, ok := err.(*interrupt.Error); ok {
		return err
	}
	return &errkind.Fault{Op: fmt.Sprintf("fit: step %d: %s", step, doing), Err: err, Class: errkind.KindOr(err, errkind.RuntimeError)}
}

// orInterrupted replaces err by the interruption if the end of ctx is its cause.
func (r *run) orInterrupted(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Cause(ctx))) {
		return r.interrupted(ctx, nil)
	}
	return err
}

// call calls a function of a hook and converts a panic to an error.
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
			return err // the error names the file and the hint
		}
	case *train.NonFiniteError:
		return err
	}
	return &errkind.Fault{Op: fmt.Sprintf("fit: hook %s after step %d", h.Name, r.state.step), Err: err, Class: errkind.KindOr(err, errkind.RuntimeError)}
}
