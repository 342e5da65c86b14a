package labels

import (
	"context"
	"runtime/pprof"
	"strconv"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit"
)

// Hook returns a hook that labels the goroutine that runs the steps, and the goroutines that it
// starts during the run. The label tpustrategy_process is the number of the process, and keyValues
// are further labels, alternating keys and values. At the end of the run, the labels of the run's
// context are restored.
//
// Pass it as the first hook, so that it labels the goroutines that other hooks start. If the number
// of keyValues is odd, the run fails before its first step.
func Hook(keyValues ...string) fit.Hook {
	var previous context.Context
	return fit.Hook{
		Name: "labels",
		Begin: func(ctx context.Context, s *fit.State) error {
			if len(keyValues)%2 != 0 {
				return &errkind.Fault{Op: "observe: labels", Reason: "a key without a value",
					Subject: strconv.Quote(keyValues[len(keyValues)-1]),
					Hint:    "give keys and values in turn", Class: errkind.InvalidArgumentError}
			}
			previous = ctx
			all := append([]string{"tpustrategy_process", strconv.Itoa(s.Strategy().Process())}, keyValues...)
			pprof.SetGoroutineLabels(pprof.WithLabels(ctx, pprof.Labels(all...)))
			return nil
		},
		End: func(context.Context, *fit.State, error) error {
			if previous != nil {
				pprof.SetGoroutineLabels(previous)
				previous = nil
			}
			return nil
		},
	}
}
