package fit

import (
	"context"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/strategy/watchdog"
)

// complete reports that a resumed run had no step left to take, and evaluates the restored model.
// It runs the Measure functions of the hooks that name the metrics they publish. It calls no Record
// function, because the record of this step was written when the step was taken.
func (r *run) complete(ctx context.Context) error {
	s := &r.state
	if s.resumed == 0 || s.step > s.resumed {
		return nil
	}
	hint := "give the early stop more patience, or remove it"
	if s.stop == "" {
		hint = "ask for more steps or epochs to train on"
		s.stop = fmt.Sprintf("the checkpoint of step %d is the end of the data", s.step)
		if r.options.Steps > 0 {
			s.stop = fmt.Sprintf("the checkpoint of step %d has all of the %d steps", s.step, r.options.Steps)
		}
	}
	r.log.Warn("fit: the resumed run has no step left to take", "step", s.step, "reason", s.stop, "hint", hint)
	if len(s.latest) > 0 {
		return nil // this call made the record that the interrupted run had left
	}
	s.latest, s.metrics = r.known(), nil
	var err error
	for i := range r.hooks {
		h := &r.hooks[i]
		if err != nil || h.Measure == nil || len(h.Publishes) == 0 {
			continue
		}
		r.does(watchdog.Hook, h.Name)
		err = r.orInterrupted(ctx, r.call(h, func() error { return h.Measure(r.work(ctx), s) }))
	}
	s.latest = merge(s.latest, s.metrics)
	return r.agree(ctx, err, nil)
}

// known returns the last values of all metrics: the values of this call, and otherwise the values of the
// checkpoint that the run resumed from.
func (r *run) known() []Metric { return merge(slices.Clone(r.lastMetrics), r.state.latest) }
