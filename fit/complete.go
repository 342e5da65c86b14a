package fit

import (
	"context"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// complete evaluates the model of a resumed run that ran no steps, or too few steps for an
// evaluation. It calls the Measure functions of the hooks that name their published metrics and
// have not measured them in this run. It calls no Record function, because this step is not a
// record. If the run had no step left, complete reports the reason.
func (r *run) complete(ctx context.Context) error {
	s := &r.state
	if s.resumed == 0 {
		return nil
	}
	measured := slices.Clone(s.latest)
	if s.step == s.resumed {
		r.reportNoStep()
		s.latest = r.known()
	}
	s.metrics = nil
	var err error
	for i := range r.hooks {
		h := &r.hooks[i]
		known := func(name string) bool { _, ok := find(measured, name); return ok }
		if err != nil || h.Measure == nil || len(h.Publishes) == 0 || slices.ContainsFunc(h.Publishes, known) {
			continue
		}
		r.does(watchdog.Hook, h.Name)
		err = r.orInterrupted(ctx, r.call(h, func() error { return h.Measure(r.work(ctx), s) }))
	}
	s.latest = merge(s.latest, s.metrics)
	return r.agree(ctx, err, nil)
}

// reportNoStep logs that the run had no step left.
func (r *run) reportNoStep() {
	s := &r.state
	hint := "give the early stop more patience, or remove it"
	if s.stop == "" {
		hint = "ask for more steps or epochs to train on"
		s.stop = fmt.Sprintf("the checkpoint of step %d is the end of the data", s.step)
		if r.options.Steps > 0 {
			s.stop = fmt.Sprintf("the checkpoint of step %d has all of the %d steps", s.step, r.options.Steps)
		}
	}
	r.log.Warn("fit: the resumed run has no step left to take", "step", s.step, "reason", s.stop, "hint", hint)
}

// known returns the last values of all metrics: the values of this call, and otherwise the values of the
// checkpoint that the run resumed from.
func (r *run) known() []Metric { return merge(slices.Clone(r.lastMetrics), r.state.latest) }
