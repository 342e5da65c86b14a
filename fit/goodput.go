package fit

import (
	"cmp"
	"context"
	"os"
	"slices"

	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Names of the metrics that a [Goodput] hook publishes.
const (
	goodputMetric     = "goodput"
	utilizationMetric = "mfu"
)

// GoodputOptions overrides the operation count of a step and the peak rate of the devices. By
// default, both are read from the report of the step.
type GoodputOptions struct {
	// FLOPs is the number of floating-point operations of a step, over all devices; 0 means
	// Cost.ModelFLOPs of the step's report.
	FLOPs float64
	// Peak is the peak rate of all devices together, in operations per second; 0 means the peak of
	// the report's TPU generation. There is no default for other devices: without Peak no
	// utilization is published for them.
	Peak float64
}

// Goodput publishes the metric "goodput" at each record (see [Options].Every): the fraction of the
// run's wall time spent in productive steps (see package goodput). It also publishes "mfu", the
// model FLOPs utilization, if the operation count and the peak rate are known. Both are from 0 to
// 1. Other hooks can record them, such as [CSV], [Events], [Curve] and observe/prom.
//
// Goodput requires a [Watch] hook, whose watchdog measures the times. If the watchdog has a Dir,
// the times include the earlier attempts of the run.
func Goodput(opts ...GoodputOptions) Hook {
	o, wrong := singleOption("hook goodput", opts)
	if wrong == nil && (o.FLOPs < 0 || o.Peak < 0) {
		wrong = optionError("hook goodput", "give a positive number, or omit it", "%g operations a step, a peak of %g",
			o.FLOPs, o.Peak)
	}
	h := Hook{Name: "goodput", Publishes: []string{goodputMetric}, err: wrong,
		Begin: func(_ context.Context, s *State) error {
			if s.runner.watchdog == nil {
				return optionError("hook goodput", "give fit.Watch, too", "the run has no watchdog, which measures its time")
			}
			return nil
		},
		onCompiled: func(s *State, c *strategy.CompiledStep) {
			if o.Peak == 0 && s.Strategy().System().Platform() == "cpu" {
				return
			}
			r, err := report.Of(c)
			if err != nil { // the run continues without mfu
				s.Warn("fit: the operations of the step are not known, so mfu is not published", "error", err)
				return
			}
			o.FLOPs = cmp.Or(o.FLOPs, r.Cost.ModelFLOPs)
			o.Peak = cmp.Or(o.Peak, r.Target.PeakFLOPS*float64(r.Replicas*r.LogicalDevices))
		},
		Measure: func(_ context.Context, s *State) error {
			h := s.runner.watchdog.History()
			s.SetMetric(goodputMetric, h.Breakdown().Goodput())
			if o.FLOPs > 0 && o.Peak > 0 {
				s.SetMetric(utilizationMetric, h.Utilization(o.FLOPs, o.Peak))
			}
			return nil
		}}
	if o.Peak > 0 {
		h.Publishes = append(h.Publishes, utilizationMetric)
	}
	return h
}

// passCompiledStep passes the compiled step to the hooks that need it. It is called before the
// first step of an attempt.
func (r *runner) passCompiledStep(ctx context.Context, args []any) error {
	if !slices.ContainsFunc(r.hooks, func(h Hook) bool { return h.onCompiled != nil }) {
		return nil
	}
	c, err := r.trainStep.Compiled(ctx, args...)
	for i := range r.hooks {
		if f := r.hooks[i].onCompiled; f != nil && err == nil {
			f(&r.state, c)
		}
	}
	return err
}

// goodputFileVariable is the environment variable with the path of the goodput file; see [Watch].
const goodputFileVariable = "TPUSTRATEGY_GOODPUT"

// writeGoodputFile writes the breakdown of the run's wall time to the goodput file.
func (r *runner) writeGoodputFile() {
	path := os.Getenv(goodputFileVariable)
	if path == "" || !r.state.isChief {
		return
	}
	// The file is not replaced by a rename, because Kubernetes mounts the file of a container's
	// termination message.
	if err := os.WriteFile(path, []byte(r.watchdog.History().Breakdown().String()+"\n"), 0o644); err != nil {
		r.log.Warn("fit: the goodput file cannot be written", "error", err)
	}
}
