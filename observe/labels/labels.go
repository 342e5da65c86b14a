package labels

import (
	"context"
	"runtime/pprof"
	"strconv"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
)

// Hook returns a hook that labels the goroutine which takes the steps, and those that it starts
// from then on, while a run is under way: tpustrategy_process is the number of the process, and
// keyValues are labels of the caller's, each a key and a value. At the end of the run the goroutine
// has the labels of the run's context again.
//
// Give it as the first hook, so that it labels what the others start. An odd number of keyValues is
// an error of the run, before its first step.
func Hook(keyValues ...string) fit.Hook {
	var before context.Context
	return fit.Hook{
		Name: "labels",
		Begin: func(ctx context.Context, s *fit.State) error {
			if len(keyValues)%2 != 0 {
				return &errkind.Fault{Op: "observe: labels", Reason: "a key without a value", Subject: strconv.Quote(keyValues[len(keyValues)-1]),
					Hint: "give keys and values in turn", Class: errkind.InvalidArgumentError}
			}
			before = ctx
			all := append([]string{"tpustrategy_process", strconv.Itoa(s.Strategy().Process())}, keyValues...)
			pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(all...)))
			return nil
		},
		End: func(context.Context, *fit.State, error) error {
			if before != nil {
				pprof.SetGoroutineLabels(before)
				before = nil
			}
			return nil
		},
	}
}
