package fit

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// isRecord reports whether the loss is read after the current step.
func (r *run) isRecord() bool {
	step := r.state.step
	if step == 1 || r.options.Every.due(step) || step == r.state.steps || r.pending != nil {
		return true
	}
	return slices.ContainsFunc(r.hooks, func(h Hook) bool { return h.asksFor(step) })
}

// upcoming returns the next step after which a hook, a record or a save is due.
func (r *run) upcoming() int64 {
	step := r.state.step
	if step == 0 {
		return 1
	}
	next := r.options.Every.next(step)
	if r.state.steps > step {
		next = min(next, r.state.steps)
	}
	for i := range r.hooks {
		if h := &r.hooks[i]; h.asks() || h.keep != nil {
			next = min(next, h.Every.next(step), h.also.next(step))
		}
		for _, asked := range r.hooks[i].steps {
			if asked > step {
				next = min(next, asked)
			}
		}
	}
	return next
}

// after does everything that is due after a step: it reads the loss, runs the Measure and Record
// functions of the hooks, and saves checkpoints.
func (r *run) after(ctx context.Context) error {
	var err error
	if r.isRecord() {
		if err = r.measure(ctx); err == nil {
			err = r.records(ctx)
		}
	}
	keep := r.keepers()
	if err = r.agree(ctx, err, keep); err != nil {
		return err
	}
	if slices.Contains(keep, true) {
		for _, last := range []bool{false, true} { // the run's checkpoint has the state of all hooks
			for i := range r.hooks {
				if h := &r.hooks[i]; keep[i] && (h.saver != nil) == last {
					r.does(watchdog.Save, h.Name)
					err = errors.Join(err, r.call(h, func() error { return h.keep(r.firm(ctx), &r.state) }))
				}
			}
		}
		if err = r.agree(ctx, err, nil); err != nil {
			return err
		}
	}
	r.due = r.upcoming()
	return nil
}

// keepers returns for each hook whether it saves variables after this step.
func (r *run) keepers() []bool {
	keep := make([]bool, len(r.hooks))
	for i := range r.hooks {
		if h := &r.hooks[i]; h.keep != nil {
			keep[i] = h.due(&r.state)
		}
	}
	return keep
}

// measure reads the loss and calls the Measure functions.
func (r *run) measure(ctx context.Context) error {
	s := &r.state
	s.metrics = s.metrics[:0]
	if r.pending != nil {
		s.metrics = append(s.metrics, r.pending...)
	} else if err := r.read(ctx); err != nil {
		return r.failed("reading the loss", s.step, r.orInterrupted(ctx, err))
	}
	begun := slices.Clone(s.metrics)
	for i := range r.hooks {
		h := &r.hooks[i]
		if h.Measure == nil || !h.at(s.step) {
			continue
		}
		r.does(watchdog.Hook, h.Name)
		if err := r.call(h, func() error { return h.Measure(r.work(ctx), s) }); err != nil {
			r.pending = begun
			return r.orInterrupted(ctx, err)
		}
	}
	r.pending = nil
	s.latest = merge(s.latest, s.metrics)
	return nil
}

// read waits for the step and reads its loss and its metrics. If the run can be resumed, an
// interrupt does not end the wait, because the loss cannot be read again later.
func (r *run) read(ctx context.Context) error {
	if r.saver != nil || r.several() {
		ctx = r.firm(ctx)
	}
	r.does(watchdog.Result, "the loss")
	loss, err := r.loss.Float64(ctx)
	if err != nil {
		return err
	}
	if r.dog != nil {
		r.dog.Loss(r.state.step, loss)
	}
	r.state.Set(Loss, loss)
	if len(r.train.MetricNames()) == 0 {
		return nil
	}
	all, err := r.train.Metrics(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Weight != 0 {
			r.state.Set(metricName(m.Name), m.Value)
		}
	}
	return r.train.ResetMetrics(ctx)
}

// metricName returns the name under which a metric of the step is published.
func metricName(name string) string {
	if name == Loss { // Loss is the name of the last step's loss
		return MeanLoss
	}
	return strings.ToValidUTF8(name, "\ufffd") // the metric files only support UTF-8
}

// records calls all Record functions that are due, also after one returned an error.
func (r *run) records(ctx context.Context) error {
	r.record = r.state.step
	var err error
	for i := range r.hooks {
		if h := &r.hooks[i]; h.Record != nil && h.at(r.state.step) {
			r.does(watchdog.Hook, h.Name)
			err = errors.Join(err, r.call(h, func() error { return h.Record(r.work(ctx), &r.state) }))
		}
	}
	return err
}
