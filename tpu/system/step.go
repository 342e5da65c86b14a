package system

import (
	"context"
	"errors"
	"strings"
	"time"
)

// runStep executes step f of Open and logs the result. Errors are returned as a *StartError with
// the name of the step. f may be blocked in C code. If ctx is done, runStep returns without waiting
// for f, and passes the value that f returns later to release.
func runStep[T any](ctx context.Context, s *starter, name string, release func(T), f func(context.Context) (T, []any,
	error)) (T, error) {
	start := time.Now()
	type outcome struct {
		value T
		notes []any // for the log
		err   error
	}
	var o outcome
	if err := ctx.Err(); err != nil {
		o.err = context.Cause(ctx)
	} else if ctx.Done() == nil {
		o.value, o.notes, o.err = f(ctx)
	} else {
		done := make(chan outcome, 1)
		go func() {
			value, notes, err := f(ctx)
			done <- outcome{value, notes, err}
		}()
		select {
		case o = <-done:
		case <-ctx.Done():
			// If f observes ctx, it returns now with a better error.
			wait := time.NewTimer(gracePeriod)
			defer wait.Stop()
			select {
			case o = <-done:
			case <-wait.C:
				o.err = context.Cause(ctx)
				go func() {
					if late := <-done; late.err == nil && release != nil {
						release(late.value)
					}
				}()
			}
		}
	}
	elapsed := time.Since(start)
	if o.err != nil {
		s.logger.Info("system: "+name+" failed", "elapsed", elapsed, "error", o.err)
		return o.value, s.addFindings(ctx, &StartError{Step: name, Elapsed: elapsed, Err: o.err})
	}
	s.logger.Info("system: "+name, append(o.notes, "elapsed", elapsed)...)
	return o.value, nil
}

// gracePeriod is the time for which runStep waits for a step after ctx is done.
const gracePeriod = 100 * time.Millisecond

// addFindings adds likely causes of a failed step to e: the missing processes, or the processes
// that use the TPU. It also adds a hint.
func (s *starter) addFindings(ctx context.Context, e *StartError) error {
	var known interface{ MissingProcesses() []int }
	switch {
	case errors.As(e.Err, &known):
		for _, i := range known.MissingProcesses() {
			e.Missing = append(e.Missing, s.processAt(i))
		}
	case (e.Step == StepOpen || e.Step == StepClient) && newLockedError(e.Err, localHost()) != nil:
		e.Err = newLockedError(e.Err, localHost())
	case e.Step == StepClient && s.opts.CPUDevices > 0 && strings.Contains(e.Err.Error(), "cpu_device_count"):
		e.Hint = "this is not the CPU plugin, so it cannot create CPU devices: set Options.CPUDevices, or the flag " +
			"-devices, to 0"
	case e.Step == StepClient && s.numOtherWorkers() > 0: // a failed worker can cause any error here
		r := s.probeWorkers(context.WithoutCancel(ctx))
		if e.Missing = r.missing; ctx.Err() != nil || len(r.missing) > 0 {
			e.Hint = strings.TrimPrefix(r.hint()+"; start the same program on every host of the slice at about the same time",
				"; ")
		}
	}
	return e
}
