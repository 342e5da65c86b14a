package fit

import (
	"context"
	"fmt"

	"github.com/tpustrategy/tpustrategy/fit/profile"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
)

// Profile records the steps o.From to o.To, or the steps that are requested through o.Trigger, for
// XProf; see package profile.
//
//	fit.Profile(profile.Options{Dir: "run/profile", From: 100, To: 110})
//
// The run waits for the step before From and for step To, as for other steps whose loss it reads.
// If the plugin has no profiler, like the CPU plugin, the profile only contains the host's
// activities. A missing profiler and a failed write are logged as warnings. Steps that are not
// recorded have no extra cost.
func Profile(o profile.Options) Hook {
	p := &profiler{options: o}
	h := Hook{Name: "profile", reset: func() { *p = profiler{options: o} },
		OnActivity: p.onActivity,
		Begin: func(_ context.Context, s *State) error {
			p.state = s
			if s.step >= o.From-1 {
				p.startIfDue(s)
			}
			return nil
		},
		Record: func(ctx context.Context, s *State) error {
			if p.recorder != nil && s.step >= p.to {
				p.stop(ctx, s)
			}
			p.startIfDue(s)
			return nil
		},
		End: func(ctx context.Context, s *State, _ error) error {
			if p.recorder != nil {
				p.stop(context.WithoutCancel(ctx), s)
			}
			return nil
		},
	}
	switch {
	case o.Dir == "":
		h.err = optionError("hook profile", "give a folder or a URL", "no Dir")
	case o.From < 0 || o.To < o.From || o.From == 0 && o.To > 0:
		h.err = optionError("hook profile", "count steps from 1, and let To be at least From", "the steps from %d to %d",
			o.From, o.To)
	case o.From > 0:
		h.recordSteps = []int64{o.From - 1, o.To}
	case o.Trigger == nil:
		h.err = optionError("hook profile", "give From and To, or a Trigger", "no steps to record")
	}
	return h
}

type profiler struct {
	options  profile.Options
	state    *State
	recorder *profile.Recorder // nil between recordings
	from, to int64             // first and last recorded step
}

// onActivity passes the start of an activity to the recorder.
func (p *profiler) onActivity(kind watchdog.Activity, name string) {
	if p.recorder == nil {
		return
	}
	if kind == watchdog.Launch {
		p.recorder.BeginStep(p.state.step + 1)
	}
	text := kind.String()
	if name != "" {
		text += ": " + name
	}
	p.recorder.BeginActivity(text)
}

// startIfDue starts a recording if the options or the trigger request one after the current step.
func (p *profiler) startIfDue(s *State) {
	if p.recorder != nil {
		return
	}
	if o := p.options; o.From > 0 && s.step >= o.From-1 && s.step < o.To {
		p.to = o.To
	} else if steps := o.Trigger.TakeRequest(); steps > 0 {
		p.to = s.step + steps
	} else {
		return
	}
	r, err := profile.Start(s.Strategy())
	if err != nil {
		s.Warn("the profile cannot be recorded", "error", err)
		return
	}
	if missing := r.DeviceError(); missing != nil {
		s.Warn("the profile contains only the host", "error", missing)
	}
	p.recorder, p.from = r, s.step+1
}

func (p *profiler) stop(ctx context.Context, s *State) {
	r := p.recorder
	p.recorder = nil
	name, err := r.Stop(ctx, p.options.Dir, fmt.Sprintf("steps_%d-%d", p.from, s.step))
	if err != nil {
		s.Warn("the profile is lost", "error", err)
		return
	}
	s.runner.log.Info("a profile was recorded", "place", p.options.Dir, "name", name)
}
