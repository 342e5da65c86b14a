package fit

import (
	"context"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// evaluateResumed evaluates the model of a resumed run that ran no steps, or too few steps for an
// evaluation. It calls the Measure functions of the hooks that name their published metrics and
// have not measured them in this run. It calls no Record function, because this step is not a
// record. If the run had no step left, complete reports the reason.
func (r *runner) evaluateResumed(ctx context.Context) error {
	s := &r.state
	if s.resumedFrom == 0 {
		return nil
	}
	measured := slices.Clone(s.latest)
	if s.step == s.resumedFrom {
		r.logNoStepsLeft()
		s.latest = r.latestMetrics()
	}
	s.metrics = nil
	var err error
	for i := range r.hooks {
		h := &r.hooks[i]
		known := func(name string) bool { _, ok := findMetric(measured, name); return ok }
		if err != nil || h.Measure == nil || len(h.Publishes) == 0 || slices.ContainsFunc(h.Publishes, known) {
			continue
		}
		r.setActivity(watchdog.Hook, h.Name)
		err = r.convertInterrupt(ctx, r.callHook(h, func() error { return h.Measure(r.collectiveContext(ctx), s) }))
	}
	s.latest = mergeMetrics(s.latest, s.metrics)
	return r.agree(ctx, err, nil)
}

// logNoStepsLeft logs that the run had no step left.
func (r *runner) logNoStepsLeft() {
	s := &r.state
	hint := "give the early stop more patience, or remove it"
	if s.stopReason == "" {
		hint = "set more steps or epochs to continue training"
		s.stopReason = fmt.Sprintf("the checkpoint of step %d is the end of the data", s.step)
		if r.options.Steps > 0 {
			s.stopReason = fmt.Sprintf("the checkpoint of step %d is complete: the run has %d steps", s.step, r.options.Steps)
		}
	}
	r.log.Warn("fit: the resumed run has no steps left", "step", s.step, "reason", s.stopReason, "hint", hint)
}

// latestMetrics returns the last values of all metrics: the values of this call, and otherwise the
// values of the checkpoint that the run resumed from.
func (r *runner) latestMetrics() []Metric {
	return mergeMetrics(slices.Clone(r.checkpointMetrics), r.state.latest)
}
