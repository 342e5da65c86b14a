package fit

import (
	"cmp"
	"context"
	"os"
	"slices"

	"github.com/tpustrategy/tpustrategy/strategy"
)

// The metrics of a [Goodput] hook: the part of the wall time in which steps were taken that count,
// over all lives of the run, and the model FLOPs utilization of that time, both from 0 to 1.
const (
	goodputMetric     = "goodput"
	utilizationMetric = "mfu"
)

// GoodputOptions say what a step asks for where its report does not. The zero value works.
type GoodputOptions struct {
	// FLOPs are the operations of a step, over all devices; 0 takes Cost.ModelFLOPs of its report.
	FLOPs float64
	// Peak is what all devices can do, in operations a second; 0 takes that of the generation of TPU.
	// Of other devices none is known, and no utilization is published.
	Peak float64
}

// Goodput publishes at each record how well the run's wall time was used, for the hooks that record
// metrics, such as [CSV], [Events], [Curve] and observe/prom. It needs a [Watch] hook before it,
// whose watchdog counts, and whose Place makes the earlier lives of the run known.
func Goodput(opts ...GoodputOptions) Hook {
	o, wrong := only("hook goodput", opts)
	if wrong == nil && (o.FLOPs < 0 || o.Peak < 0) {
		wrong = option("hook goodput", "give what is above 0, or leave it out", "%g operations a step, a peak of %g", o.FLOPs, o.Peak)
	}
	h := Hook{Name: "goodput", Publishes: []string{goodputMetric}, wrong: wrong,
		Begin: func(_ context.Context, s *State) error {
			if s.run.dog == nil {
				return option("hook goodput", "give fit.Watch, too", "nothing counts the run's time")
			}
			return nil
		},
		compiled: func(s *State, c *strategy.CompiledStep) {
			if o.Peak == 0 && s.Strategy().System().Platform() == "cpu" {
				return
			}
			report, err := c.Report()
			if err != nil { // which is no reason to end a run
				s.Warn("fit: what the step asks for is not known, so there is no mfu", "error", err)
				return
			}
			o.FLOPs = cmp.Or(o.FLOPs, report.Cost.ModelFLOPs)
			o.Peak = cmp.Or(o.Peak, report.Target.PeakFLOPS*float64(report.Replicas*report.LogicalDevices))
		},
		Measure: func(_ context.Context, s *State) error {
			h := s.run.dog.History()
			s.Set(goodputMetric, h.Shares().Goodput())
			if o.FLOPs > 0 && o.Peak > 0 {
				s.Set(utilizationMetric, h.Utilization(o.FLOPs, o.Peak))
			}
			return nil
		}}
	if o.Peak > 0 {
		h.Publishes = append(h.Publishes, utilizationMetric)
	}
	return h
}

// describe tells the hooks that ask of the compiled step, before the first one is taken.
func (r *run) describe(ctx context.Context, args []any) error {
	if !slices.ContainsFunc(r.hooks, func(h Hook) bool { return h.compiled != nil }) {
		return nil
	}
	c, err := r.train.Compiled(ctx, args...)
	for i := range r.hooks {
		if tell := r.hooks[i].compiled; tell != nil && err == nil {
			tell(&r.state, c)
		}
	}
	return err
}

// goodputFile is the variable of the environment that names a file for [Watch].
const goodputFile = "TPUSTRATEGY_GOODPUT"

// tellGoodput writes where the time of the run has gone to the file that the environment names.
func (r *run) tellGoodput() {
	path := os.Getenv(goodputFile)
	if path == "" || !r.state.first {
		return
	}
	// In place, as Kubernetes mounts the file of a container's last message.
	if err := os.WriteFile(path, []byte(r.dog.History().Shares().String()+"\n"), 0o644); err != nil {
		r.log.Warn("fit: who started this program is not told where its time went", "error", err)
	}
}
