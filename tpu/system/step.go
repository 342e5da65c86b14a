package system

import (
	"context"
	"errors"
	"strings"
	"time"
)

// step runs one step, logs it and names it in its error. A step that C code holds up is left behind
// when ctx ends: drop gets what it then makes.
func step[T any](ctx context.Context, s *starter, name string, drop func(T), f func(context.Context) (T, []any, error)) (T, error) {
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
			// A call that looks at ctx ends now; prefer what it has to say.
			wait := time.NewTimer(grace)
			defer wait.Stop()
			select {
			case o = <-done:
			case <-wait.C:
				o.err = context.Cause(ctx)
				go func() {
					if late := <-done; late.err == nil && drop != nil {
						drop(late.value)
					}
				}()
			}
		}
	}
	elapsed := time.Since(start)
	if o.err != nil {
		s.logger.Error("system: "+name, "elapsed", elapsed, "error", o.err)
		return o.value, s.explain(ctx, &StartError{Step: name, Elapsed: elapsed, Err: o.err})
	}
	s.logger.Info("system: "+name, append(o.notes, "elapsed", elapsed)...)
	return o.value, nil
}

// grace is how long a step is given to end by itself once its context has.
const grace = 100 * time.Millisecond

// explain adds what is known to an error: who is missing, who holds the TPU.
func (s *starter) explain(ctx context.Context, e *StartError) error {
	var known interface{ MissingProcesses() []int }
	switch {
	case errors.As(e.Err, &known):
		for _, i := range known.MissingProcesses() {
			e.Missing = append(e.Missing, s.member(i))
		}
	case (e.Step == StepOpen || e.Step == StepClient) && explainLock(e.Err, thisHost()) != nil:
		e.Err = explainLock(e.Err, thisHost())
	case e.Step == StepClient && s.others() > 0: // the end of one of them is an error of any kind here
		r := s.reach(context.WithoutCancel(ctx))
		if e.Missing = r.missing; ctx.Err() != nil || len(r.missing) > 0 {
			e.Hint = strings.TrimPrefix(r.hint()+"; start the same program on every host of the slice, about the same time", "; ")
		}
	}
	return e
}
