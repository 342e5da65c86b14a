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
// completes a running save, saves a checkpoint if there is a [Checkpoint] hook, and ends the hooks.
// It then returns an [*interrupt.Error], which matches the context's error and contains the exit
// code of the process.
//
// With several processes, every process must call Run with the same options, hooks and data. After
// each record the processes agree on whether to continue, which costs one launch. An error or a
// stop in one process ends all of them after the same step. Between records the processes exchange
// interrupts about twice a second, without waiting ([interrupt.Agreement]). An interrupt of one
// process ends all of them after the same step, within a second or two steps.
//
// Errors before the first step: kind ValueError for invalid options, hooks or data, kind
// NotFoundError for a required metric that nothing measures, and [ErrResume]. Data that ends before
// Options.Steps is an error of kind OutOfRangeError. Other errors are [*train.NonFiniteError],
// [*interrupt.Error], [ErrWrite], [ErrSave], [*errkind.PanicError], and the errors of steps, data
// and hooks with the step in their text. Several errors are joined. The variables stay on the
// devices.
func Run(ctx context.Context, step *train.Step, data Data, o Options, hooks ...Hook) (Result, error) {
	start := time.Now()
	r := &runner{options: o, hooks: hooks, data: data, trainStep: step, log: o.Logger}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	err := r.prepare(ctx)
	if err == nil {
		ctx, err = r.startWatch(ctx)
	}
	if err == nil {
		err = r.execute(ctx)
	}
	if r.source != nil {
		r.setActivity(watchdog.Setup, "closing the data")
		err = errors.Join(err, r.source.close())
	}
	if r.agreement != nil {
		err = errors.Join(err, r.agreement.Close())
	}
	err = r.endWatch(err)
	r.result.Seconds = time.Since(start).Seconds()
	return r.result, err
}

// runner is the state of one call of Run.
type runner struct {
	options   Options
	hooks     []Hook
	data      Data
	trainStep *train.Step
	strategy  *strategy.TPUStrategy
	log       *slog.Logger
	saver     *saver // nil without a Checkpoint hook
	// agreement lets several processes agree on an interrupt between two records.
	agreement *interrupt.Agreement
	// The next fields belong to a Watch hook and are nil without one. Only the watchdog cancels
	// uninterrupted. The stop functions release the contexts.
	watchOptions                   *watchdog.Options
	watchdog                       *watchdog.Watchdog
	uninterrupted                  context.Context
	stopUninterrupted, stopWatched func()
	// replayEvery is the interval of a Replay hook. lastVerified is the last step that was replayed
	// without a difference, or the step from which this run resumed.
	replayEvery  Every
	lastVerified int64
	// activity is the current activity of the run. watchdogErr is the watchdog's error that
	// explains a failure.
	activity    watchdog.Activity
	watchdogErr error

	state      State
	source     source
	position   position // position after the last step
	prefetched *batch   // batch that was read ahead to compile the step
	loss       *strategy.Mirrored
	nextDue    int64 // next step after which something is due
	recordStep int64 // step of the last record
	savedStep  int64 // step of the last checkpoint
	// isMainSave is true while the Checkpoint hook saves to its directory, as opposed to a local
	// checkpoint or the checkpoint of another hook.
	isMainSave bool
	// savedLocalStep is the step of the last local checkpoint.
	savedLocalStep int64
	// checkpointMetrics contains the metrics of the checkpoint from which the run resumed.
	checkpointMetrics []Metric
	// pendingMetrics contains the metrics of a step that the hooks have not processed. They cannot
	// be read from the devices again.
	pendingMetrics []Metric
	begunHooks     int  // number of hooks whose End must run
	inAgreement    bool // all processes are in the same operation of the run
	// started reports that start succeeded, so that the run may execute steps.
	started bool
	result  Result
}

type batch struct {
	args []any
	rows int
}

func (r *runner) prepare(ctx context.Context) error {
	if r.trainStep == nil {
		return optionError("step", "make it with train.New", "no training step: a nil pointer")
	}
	r.strategy = r.trainStep.Strategy()
	r.agreement = interrupt.NewAgreement(r.strategy)
	if err := strategy.RefuseTracing(ctx, "fit", fault.InsteadOfRunning); err != nil {
		return err
	}
	if r.data.open == nil {
		return optionError("data", "give Dataset, Distributed, Feed or Batches", "no data: the zero Data")
	}
	if err := validateOptions(r.options, r.hooks, r.stepMetricNames()); err != nil {
		return err
	}
	r.options.Every, r.options.Epochs = cmp.Or(r.options.Every, defaultEvery), cmp.Or(r.options.Epochs, 1)
	if r.data.singlePass && r.options.Epochs > 1 {
		return optionError("option Epochs", "give the dataset by Dataset", "%d passes over a feed, which is one",
			r.options.Epochs)
	}
	for i := range r.hooks {
		h := &r.hooks[i]
		r.saver, r.watchOptions, r.replayEvery = cmp.Or(h.saver, r.saver), cmp.Or(h.watch, r.watchOptions), cmp.Or(h.replay,
			r.replayEvery)
		if h.reset != nil {
			h.reset()
		}
	}
	r.state = State{runner: r, isChief: r.strategy.Process() == 0, totalSteps: r.options.Steps, warn: r.log.Warn}
	r.position, r.recordStep, r.savedStep, r.savedLocalStep = position{}, -1, -1, -1
	return nil
}

// execute performs the run, from start to the End functions of the hooks.
func (r *runner) execute(ctx context.Context) error {
	err := r.start(ctx)
	if r.started = err == nil; r.started && r.watchdog != nil {
		r.watchdog.SetStep(r.state.step, r.state.totalSteps)
	}
	if err == nil && r.pendingMetrics != nil {
		err = r.finishStep(ctx)
	}
	if err == nil {
		err = r.loop(ctx)
	}
	doing := r.activity
	if !r.state.startTime.IsZero() {
		err = errors.Join(err, r.waitForSteps(ctx, err))
		r.result.TrainSeconds = r.state.Elapsed().Seconds()
	}
	if err == nil {
		err = r.checkMeasured()
	}
	if err == nil {
		err = r.evaluateResumed(ctx)
	}
	if r.saver != nil {
		r.saver.limitWait(r, err)
	}
	r.diagnoseFailure(err, doing)
	saveErr := r.saveLast(ctx, err)
	if r.saver != nil {
		if err == nil && saveErr != nil {
			r.inAgreement = false
			r.saver.limitWait(r, saveErr)
		}
		r.saver.closeLocal(ctx, r, err)
		saveErr = errors.Join(saveErr, r.saver.close(r))
	}
	if err == nil && saveErr != nil { // the processes did not agree on this error
		r.inAgreement = false
		r.diagnoseFailure(saveErr, r.activity)
	}
	if stopped, ok := errors.AsType[*interrupt.Error](err); ok && r.saver != nil && saveErr == nil && r.savedStep > 0 &&
		r.savedStep == r.state.step {
		stopped.Directory = r.saver.path
	}
	err = errors.Join(err, saveErr)
	for i := range r.hooks[:r.begunHooks] {
		if end := r.hooks[i].End; end != nil {
			err = errors.Join(err, r.callHook(&r.hooks[i], func() error {
				r.setActivity(watchdog.Hook, r.hooks[i].Name)
				return end(context.WithoutCancel(ctx), &r.state, err)
			}))
		}
	}
	r.result.Step, r.result.ResumedFrom, r.result.StepsRun = r.state.step, r.state.resumedFrom,
		r.state.step-r.state.resumedFrom
	r.result.Rows, r.result.Epochs = r.state.rows, r.state.epoch
	r.result.Metrics, r.result.StopReason = r.state.latest, r.state.stopReason
	return err
}

// checkMeasured returns an error if a hook requires a metric that was not measured. validateOptions
// cannot detect this error if another hook may publish any metric.
func (r *runner) checkMeasured() error {
	if len(r.state.latest) == 0 {
		return nil // there was no record
	}
	known := r.state.knownMetricNames()
	for i := range r.hooks {
		for _, name := range r.hooks[i].Requires {
			if _, measured := findMetric(r.state.latest, name); measured || slices.Contains(known, name) {
				continue
			}
			for _, m := range r.state.latest {
				if !slices.Contains(known, m.Name) {
					known = append(known, m.Name)
				}
			}
			return missingMetricError(r.hooks[i].Name, name, known)
		}
	}
	return nil
}

// waitForSteps waits for the last launched step, so that its error is reported and its time is
// measured.
func (r *runner) waitForSteps(ctx context.Context, failed error) error {
	if r.loss == nil || failed != nil && r.saver == nil {
		return nil
	}
	r.setActivity(watchdog.Result, "the last step")
	if err := r.loss.Ready(r.withoutInterrupt(ctx)); err != nil && failed == nil {
		return r.stepError("waiting for the last step", r.state.step, err)
	}
	return nil
}

func (r *runner) loop(ctx context.Context) error {
	for r.state.stopReason == "" && (r.options.Steps == 0 || r.state.step < r.options.Steps) {
		if ctx.Err() != nil && !r.isMultiProcess() {
			return r.interruptError(ctx, nil)
		}
		r.setActivity(watchdog.Input, "")
		args, rows, err := r.nextBatch(ctx)
		if err == io.EOF {
			more, err := r.nextPass(ctx)
			if err != nil {
				return err
			}
			if more {
				continue
			}
			return r.finishData(ctx)
		}
		if err != nil {
			return r.stepError("reading the batch", r.state.step+1, r.convertInterrupt(ctx, err))
		}
		r.inAgreement = false
		r.setActivity(watchdog.Launch, "")
		loss, err := r.runStep(r.collectiveContext(ctx), args)
		if err != nil {
			return r.stepError("taking the step", r.state.step+1, r.convertInterrupt(ctx, err))
		}
		if r.state.startTime.IsZero() {
			r.state.startTime = time.Now()
		}
		r.loss = loss
		r.state.step++
		if r.watchdog != nil {
			r.watchdog.CompleteStep()
		}
		r.state.rows += int64(rows)
		r.position.Batches++
		r.position.Input = r.source.state()
		if r.state.step >= r.nextDue {
			if err := r.finishStep(ctx); err != nil {
				return err
			}
		} else if err := r.checkInterrupts(ctx); err != nil {
			return r.stepError("asking the other processes", r.state.step, err)
		}
	}
	return nil
}

// nextBatch returns the prefetched batch, or the next batch of the source.
func (r *runner) nextBatch(ctx context.Context) ([]any, int, error) {
	if b := r.prefetched; b != nil {
		r.prefetched = nil
		return b.args, b.rows, nil
	}
	return r.source.next(r.collectiveContext(ctx))
}

// collectiveContext returns the context for operations in which all processes take part. With
// several processes, an interrupt does not cancel it, because all processes must first agree to
// stop.
func (r *runner) collectiveContext(ctx context.Context) context.Context {
	if r.isMultiProcess() {
		return r.withoutInterrupt(ctx)
	}
	return ctx
}

// nextPass begins the next pass over the data. It returns false after the last pass.
func (r *runner) nextPass(ctx context.Context) (more bool, err error) {
	if r.position.Batches == 0 {
		return false, &errkind.Fault{Op: "fit: data", Reason: "it has no batch", Class: errkind.OutOfRangeError,
			Hint: "check the files and filters of the dataset, and that a batch is not larger than the data"}
	}
	if r.state.epoch >= r.options.Epochs {
		return false, nil
	}
	err, r.source = r.source.close(), nil
	if err != nil {
		return false, r.stepError("closing the data", r.state.step+1, err)
	}
	return true, r.openPass(ctx, position{Epoch: r.position.Epoch + 1})
}

func (r *runner) openPass(ctx context.Context, pos position) (err error) {
	r.setActivity(watchdog.Setup, "opening the data")
	if r.source, err = r.data.open(r.collectiveContext(ctx),
		openOptions{strategy: r.strategy, arguments: r.trainStep.Arguments(), start: pos}); err != nil {
		r.source = nil
		return r.stepError("opening the data", r.state.step+1, r.convertInterrupt(ctx, err))
	}
	r.position = pos
	r.state.epoch = pos.Epoch + 1
	return nil
}

// finishData completes a run whose data has ended. If Options.Steps was not reached, it returns an
// error.
func (r *runner) finishData(ctx context.Context) error {
	if r.options.Steps > 0 {
		return &errkind.Fault{Match: errDataEnded, Reason: fmt.Sprintf("%d of %d steps were run", r.state.step,
			r.options.Steps),
			Hint: "repeat the dataset (Repeat(-1) after its Shuffle), or set Epochs instead of Steps"}
	}
	if r.recordStep == r.state.step || r.loss == nil {
		return nil
	}
	r.nextDue = r.state.step
	r.state.totalSteps = r.state.step
	return r.finishStep(ctx)
}

func (r *runner) isMultiProcess() bool { return r.strategy.NumProcesses() > 1 }

// stepError adds the number of the step and the name of the operation to the text of err. It
// returns an *interrupt.Error unchanged.
func (r *runner) stepError(doing string, step int64, err error) error {
	if _, ok := err.(*interrupt.Error); ok {
		return err
	}
	return &errkind.Fault{Op: fmt.Sprintf("fit: step %d: %s", step, doing), Err: err,
		Class: errkind.KindOr(err, errkind.RuntimeError)}
}

// convertInterrupt returns an *interrupt.Error if the end of ctx caused err, and err otherwise.
func (r *runner) convertInterrupt(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && (errors.Is(err, cause) || errors.Is(err, context.Cause(ctx))) {
		return r.interruptError(ctx, nil)
	}
	return err
}

// callHook calls a function of a hook. It converts a panic to an error, and adds the hook and the
// step to errors.
func (r *runner) callHook(h *Hook, f func() error) error {
	err := func() (err error) {
		defer errkind.Recover("fit: it", &err)
		return f()
	}()
	switch fault := err.(type) {
	case nil:
		return nil
	case *errkind.Fault:
		if fault.Match == ErrWrite || fault.Match == ErrSave {
			return err // the error names the file and the hint
		}
	case *train.NonFiniteError:
		return err
	}
	return &errkind.Fault{Op: fmt.Sprintf("fit: hook %s after step %d", h.Name, r.state.step), Err: err,
		Class: errkind.KindOr(err, errkind.RuntimeError)}
}
