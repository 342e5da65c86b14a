package fit

import (
	"context"
	"fmt"
	"slices"

	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// evaluateResumed evaluates the model of a resumed run that ended before its next evaluation. It
// calls the Measure functions of hooks whose published metrics were not measured in this run, but
// no Record functions.
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
	return r.exchangeVotes(ctx, err, nil)
}

// logNoStepsLeft sets the stop reason of a run without steps and logs a warning.
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

// latestMetrics returns the last value of each metric. For metrics that this run has not measured,
// it returns the values in the checkpoint from which the run resumed.
func (r *runner) latestMetrics() []Metric {
	return mergeMetrics(slices.Clone(r.checkpointMetrics), r.state.latest)
}
