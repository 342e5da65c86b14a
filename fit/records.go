package fit

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// isRecord reports whether the run reads the loss and calls the hooks after the current step.
func (r *runner) isRecord() bool {
	step := r.state.step
	if step == 1 || r.options.Every.isDue(step) || step == r.state.totalSteps || r.pendingMetrics != nil {
		return true
	}
	return slices.ContainsFunc(r.hooks, func(h Hook) bool { return h.makesRecord(step) })
}

// nextDueStep returns the next step after which the run reads the loss, calls a hook or saves
// variables.
func (r *runner) nextDueStep() int64 {
	step := r.state.step
	if step == 0 {
		return 1
	}
	next := r.options.Every.nextDue(step)
	if r.state.totalSteps > step {
		next = min(next, r.state.totalSteps)
	}
	for i := range r.hooks {
		if h := &r.hooks[i]; h.addsRecords() || h.saveVariables != nil {
			next = min(next, h.Every.nextDue(step), h.saveEvery.nextDue(step))
		}
		for _, extra := range r.hooks[i].recordSteps {
			if extra > step {
				next = min(next, extra)
			}
		}
	}
	return next
}

// finishStep performs the work that is due after a step: it reads the metrics, calls the hooks, and
// saves checkpoints.
func (r *runner) finishStep(ctx context.Context) error {
	var err error
	if r.isRecord() {
		if err = r.measureMetrics(ctx); err == nil {
			err = r.runRecordHooks(ctx)
		}
	}
	keep := r.hooksToSave()
	if err = r.exchangeVotes(ctx, err, keep); err != nil {
		return err
	}
	if slices.Contains(keep, true) {
		for _, last := range []bool{false, true} { // the run's checkpoint has the state of all hooks
			for i := range r.hooks {
				if h := &r.hooks[i]; keep[i] && (h.saver != nil) == last {
					r.setActivity(watchdog.Save, h.Name)
					err = errors.Join(err, r.callHook(h, func() error { return h.saveVariables(r.withoutInterrupt(ctx), &r.state) }))
				}
			}
		}
		if err = r.exchangeVotes(ctx, err, nil); err != nil {
			return err
		}
	}
	r.nextDue = r.nextDueStep()
	return nil
}

// hooksToSave returns one bool for each hook: whether the hook saves variables after this step.
func (r *runner) hooksToSave() []bool {
	keep := make([]bool, len(r.hooks))
	for i := range r.hooks {
		if h := &r.hooks[i]; h.saveVariables != nil {
			keep[i] = h.shouldSave(&r.state)
		}
	}
	return keep
}

// measureMetrics reads the metrics of the step and calls the Measure functions of the hooks.
func (r *runner) measureMetrics(ctx context.Context) error {
	s := &r.state
	s.metrics = s.metrics[:0]
	if r.pendingMetrics != nil {
		s.metrics = append(s.metrics, r.pendingMetrics...)
	} else if err := r.readLoss(ctx); err != nil {
		return r.stepError("reading the loss", s.step, r.convertInterrupt(ctx, err))
	}
	begun := slices.Clone(s.metrics)
	for i := range r.hooks {
		h := &r.hooks[i]
		if h.Measure == nil || !h.isDue(s.step) {
			continue
		}
		r.setActivity(watchdog.Hook, h.Name)
		if err := r.callHook(h, func() error { return h.Measure(r.collectiveContext(ctx), s) }); err != nil {
			r.pendingMetrics = begun
			return r.convertInterrupt(ctx, err)
		}
	}
	r.pendingMetrics = nil
	s.latest = mergeMetrics(s.latest, s.metrics)
	return nil
}

// readLoss waits for the step and reads its loss and metrics. If the run has checkpoints or several
// processes, an interrupt does not cancel the wait.
func (r *runner) readLoss(ctx context.Context) error {
	if r.saver != nil || r.isMultiProcess() {
		ctx = r.withoutInterrupt(ctx)
	}
	r.setActivity(watchdog.Result, "the loss")
	loss, err := r.loss.Float64(ctx)
	if err != nil {
		return err
	}
	if r.watchdog != nil {
		r.watchdog.SetLoss(r.state.step, loss)
	}
	r.state.SetMetric(Loss, loss)
	if len(r.trainStep.MetricNames()) == 0 {
		return nil
	}
	all, err := r.trainStep.Metrics(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Weight != 0 {
			r.state.SetMetric(publishedName(m.Name), m.Value)
		}
	}
	return r.trainStep.ResetMetrics(ctx)
}

// publishedName converts the name of a training step's metric to the name that hooks use for it.
func publishedName(name string) string {
	if name == Loss { // Loss is the name of the last step's loss
		return MeanLoss
	}
	return strings.ToValidUTF8(name, "\ufffd") // the metric files only support UTF-8
}

// runRecordHooks calls the Record functions of the hooks that are due at this step. After an error
// it still calls the remaining functions.
func (r *runner) runRecordHooks(ctx context.Context) error {
	r.recordStep = r.state.step
	var err error
	for i := range r.hooks {
		if h := &r.hooks[i]; h.Record != nil && h.isDue(r.state.step) {
			r.setActivity(watchdog.Hook, h.Name)
			err = errors.Join(err, r.callHook(h, func() error { return h.Record(r.collectiveContext(ctx), &r.state) }))
		}
	}
	return err
}
