package fit

import (
	"context"
	"errors"
	"io"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/input"
)

// begin finds the checkpoint to resume from, opens the data, restores the variables, and begins the
// hooks.
func (r *run) begin(ctx context.Context) error {
	if err := r.alike(ctx); err != nil {
		return err
	}
	var from *point
	var err error
	if r.saver != nil {
		r.does(watchdog.Restore, "looking for a checkpoint")
		from, err = r.saver.find(r.work(ctx), r)
		err = r.orInterrupted(ctx, err)
	}
	if from != nil {
		defer from.checkpoint.Close()
		r.state.step, r.state.resumed, r.savedNear, r.record = from.Step, from.Step, from.Step, from.Step
		if !from.near {
			r.saved = from.Step
		}
		r.pending, r.lastMetrics = metricsOf(from.Pending), metricsOf(from.Latest)
	}
	at := position{}
	if from != nil {
		at = from.Position
	}
	if err == nil {
		err = r.open(ctx, at)
	}
	if err == nil {
		err = r.total()
	}
	if err := r.agree(ctx, err, nil); err != nil {
		return err
	}
	if from != nil {
		r.does(watchdog.Restore, "")
		err = r.orInterrupted(ctx, r.restore(r.work(ctx), from))
	}
	r.due, r.clean = r.upcoming(), r.state.step
	if err == nil {
		err = r.beginHooks(ctx, from)
	}
	return r.agree(ctx, err, nil)
}

// total computes the total number of steps from the dataset's size, unless Options.Steps is set.
func (r *run) total() error {
	card := r.source.steps()
	switch {
	case r.options.Steps > 0:
	case card == input.Infinite:
		return option("option Steps", "give the number of steps", "none, and the dataset has no end")
	case card > 0:
		r.state.steps = int64(card) * r.options.Epochs
	}
	return nil
}

// beginHooks calls the Load functions with the saved state, and then the Begin functions.
func (r *run) beginHooks(ctx context.Context, from *point) error {
	if from != nil {
		for i := range r.hooks {
			h := &r.hooks[i]
			state, ok := from.Hooks[h.Name]
			if h.Load == nil || !ok {
				continue
			}
			if err := r.call(h, func() error { return h.Load(state) }); err != nil {
				return notResumed(r.saver.path, from.Step, err, "give the hooks that the run began with, or another directory", "the state of hook %s", h.Name)
			}
		}
	}
	for i := range r.hooks {
		r.begun = i
		if h := &r.hooks[i]; h.Begin != nil {
			r.does(watchdog.Hook, h.Name)
			if err := r.call(h, func() error { return h.Begin(r.work(ctx), &r.state) }); err != nil {
				return r.orInterrupted(ctx, err)
			}
		}
		r.begun = i + 1
	}
	return nil
}

// ahead reads the next batch, so that the step can be compiled for its shapes. It returns nil if
// the data has ended.
func (r *run) ahead(ctx context.Context) (*batch, error) {
	for {
		args, rows, err := r.source.next(ctx)
		if err == nil {
			r.first = &batch{args, rows}
			return r.first, nil
		}
		if !errors.Is(err, io.EOF) {
			return nil, r.failed("reading the batch", r.state.step+1, r.orInterrupted(ctx, err))
		}
		more, err := r.pass(ctx)
		if err != nil || !more {
			return nil, err
		}
	}
}
