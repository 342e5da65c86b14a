package fit

import "context"

// The metrics of a [Goodput] hook: the part of the wall time in which steps were taken that count,
// over all lives of the run, and the model FLOPs utilization of that time, both from 0 to 1.
const (
	goodputMetric     = "goodput"
	utilizationMetric = "mfu"
)

// GoodputOptions say what a step asks for, which [Goodput] cannot know. The zero value works.
type GoodputOptions struct {
	// FLOPs are the operations of a step, over all devices: Cost.ModelFLOPs of its report. 0 publishes
	// no utilization.
	FLOPs float64
	// Peak is what all devices can do, in operations a second, such as tpu.Accelerator.PeakFLOPS.
	Peak float64
}

// Goodput publishes at each record how well the run's wall time was used, for the hooks that record
// metrics, such as [CSV], [Events], [Curve] and observe/prom. It needs a [Watch] hook before it,
// whose watchdog counts, and whose Place makes the earlier lives of the run known.
func Goodput(opts ...GoodputOptions) Hook {
	o, wrong := only("hook goodput", opts)
	if wrong == nil && (o.FLOPs < 0 || o.Peak < 0 || o.FLOPs > 0 && o.Peak == 0) {
		wrong = option("hook goodput", "give both, or leave both out", "%g operations a step, a peak of %g", o.FLOPs, o.Peak)
	}
	h := Hook{Name: "goodput", Publishes: []string{goodputMetric}, wrong: wrong,
		Begin: func(_ context.Context, s *State) error {
			if s.run.dog == nil {
				return option("hook goodput", "give fit.Watch, too", "nothing counts the run's time")
			}
			return nil
		},
		Measure: func(_ context.Context, s *State) error {
			h := s.run.dog.History()
			s.Set(goodputMetric, h.Shares().Goodput())
			if o.FLOPs > 0 {
				s.Set(utilizationMetric, h.Utilization(o.FLOPs, o.Peak))
			}
			return nil
		}}
	if o.FLOPs > 0 {
		h.Publishes = append(h.Publishes, utilizationMetric)
	}
	return h
}
