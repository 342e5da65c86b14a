package fit

import (
	"context"
	"errors"
	"io"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/input"
)

// start finds the checkpoint to resume from, opens the data, restores the variables, and calls the
// Begin functions of the hooks.
func (r *runner) start(ctx context.Context) error {
	if err := r.checkSameOptions(ctx); err != nil {
		return err
	}
	var saved *savedState
	var err error
	if r.saver != nil {
		r.setActivity(watchdog.Restore, "looking for a checkpoint")
		saved, err = r.saver.findSnapshot(r.collectiveContext(ctx), r)
		err = r.convertInterrupt(ctx, err)
	}
	if saved != nil {
		defer saved.checkpoint.Close()
		r.state.step, r.state.resumedFrom, r.savedLocalStep, r.recordStep = saved.Step, saved.Step, saved.Step, saved.Step
		if !saved.isLocal {
			r.savedStep = saved.Step
		}
		r.pendingMetrics, r.checkpointMetrics = decodeMetrics(saved.Pending), decodeMetrics(saved.Latest)
	}
	pos := position{}
	if saved != nil {
		pos = saved.Position
	}
	if err == nil {
		err = r.openPass(ctx, pos)
	}
	if err == nil {
		err = r.setTotalSteps()
	}
	if err := r.exchangeVotes(ctx, err, nil); err != nil {
		return err
	}
	if saved != nil {
		r.setActivity(watchdog.Restore, "")
		err = r.convertInterrupt(ctx, r.restore(r.collectiveContext(ctx), saved))
	}
	r.nextDue, r.lastVerified = r.nextDueStep(), r.state.step
	if err == nil {
		err = r.beginHooks(ctx, saved)
	}
	return r.exchangeVotes(ctx, err, nil)
}

// setTotalSteps computes the number of steps of the run from the size of the dataset, unless
// Options.Steps is set.
func (r *runner) setTotalSteps() error {
	card := r.source.cardinality()
	switch {
	case r.options.Steps > 0:
	case card == input.Infinite:
		return optionError("option Steps", "give the number of steps", "none, and the dataset is infinite")
	case card > 0:
		r.state.totalSteps = int64(card) * r.options.Epochs
	}
	return nil
}

// beginHooks calls the Load functions of the hooks with their saved state, and then the Begin
// functions.
func (r *runner) beginHooks(ctx context.Context, saved *savedState) error {
	if saved != nil {
		for i := range r.hooks {
			h := &r.hooks[i]
			state, ok := saved.Hooks[h.Name]
			if h.Load == nil || !ok {
				continue
			}
			if err := r.callHook(h, func() error { return h.Load(state) }); err != nil {
				return resumeError(r.saver.path, saved.Step, err, "give the hooks that the run began with, or another directory",
					"the state of hook %s", h.Name)
			}
		}
	}
	for i := range r.hooks {
		r.begunHooks = i
		if h := &r.hooks[i]; h.Begin != nil {
			r.setActivity(watchdog.Hook, h.Name)
			if err := r.callHook(h, func() error { return h.Begin(r.collectiveContext(ctx), &r.state) }); err != nil {
				return r.convertInterrupt(ctx, err)
			}
		}
		r.begunHooks = i + 1
	}
	return nil
}

// prefetchBatch reads the first batch early, so that the step can be compiled for its shapes. It
// returns nil if the data has ended.
func (r *runner) prefetchBatch(ctx context.Context) (*batch, error) {
	for {
		args, rows, err := r.source.next(ctx)
		if err == nil {
			r.prefetched = &batch{args, rows}
			return r.prefetched, nil
		}
		if !errors.Is(err, io.EOF) {
			return nil, r.stepError("reading the batch", r.state.step+1, r.convertInterrupt(ctx, err))
		}
		more, err := r.nextPass(ctx)
		if err != nil || !more {
			return nil, err
		}
	}
}
