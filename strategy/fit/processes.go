package fit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
)

// vote is what a process tells the others after a record.
type vote struct {
	Failed      string `json:",omitempty"`
	Stop        string `json:",omitempty"`
	Interrupted bool   `json:",omitempty"`
	// Keep says which hooks save. That of the first process counts.
	Keep []bool `json:",omitempty"`
}

// agree lets the processes agree on whether the run goes on, and what is saved. It returns the same
// decision on all of them: an error if any has one.
func (r *run) agree(ctx context.Context, mine error, keep []bool) error {
	if !r.several() {
		return mine
	}
	v := vote{Stop: r.state.stop, Interrupted: ctx.Err() != nil, Keep: keep}
	if mine != nil {
		v.Failed = mine.Error()
	}
	message, err := json.Marshal(v)
	if err != nil {
		return errors.Join(mine, err)
	}
	all, err := r.strategy.GatherBytes(context.WithoutCancel(ctx), fmt.Sprintf("fit: after step %d", r.state.step), message)
	if err != nil {
		return errors.Join(mine, err)
	}
	r.agreed = true
	interrupted := false
	for i, message := range all {
		var v vote
		if err := json.Unmarshal(message, &v); err != nil {
			return errors.Join(mine, &errkind.Fault{Op: "fit: agree", Subject: fmt.Sprintf("process %d", i), Err: err, Class: errkind.InternalError})
		}
		if v.Failed != "" && mine == nil {
			mine = &errkind.Fault{Op: fmt.Sprintf("fit: process %d", i), Reason: v.Failed, Hint: "see the error of that process", Class: errkind.UnavailableError}
		}
		if v.Stop != "" {
			r.state.Stop(v.Stop)
		}
		interrupted = interrupted || v.Interrupted
		if i == 0 {
			copy(keep, v.Keep)
		}
	}
	if mine == nil && interrupted {
		return r.interrupted(ctx)
	}
	return mine
}

// InterruptedError reports that the context of a run ended. It matches the context's error, such as
// context.Canceled, and the context's cause.
type InterruptedError struct {
	// Taken is the number of steps that were taken, of the whole run.
	Taken int64
	// Directory is where the checkpoint of these steps is; empty if there is none.
	Directory string
	// Err is the context's error, or its cause.
	Err error

	context error
}

// Error says how far the run came and where its checkpoint is.
func (e *InterruptedError) Error() string {
	hint := ""
	if e.Directory != "" {
		hint = "its checkpoint is in " + e.Directory + ", resume to go on"
	}
	return errkind.Text("fit", fmt.Sprintf("interrupted after %d steps", e.Taken), e.Err, hint)
}

// Unwrap returns the context's error and its cause.
func (e *InterruptedError) Unwrap() []error { return []error{e.context, e.Err} }

// Kind returns CancelledError or DeadlineExceededError.
func (e *InterruptedError) Kind() errkind.Kind { return errkind.Or(e.context, errkind.CancelledError) }

// interrupted returns the error of a run whose context ended, here or in another process.
func (r *run) interrupted(ctx context.Context) error {
	e := &InterruptedError{Taken: r.state.step, Err: context.Cause(ctx), context: ctx.Err()}
	if e.context == nil {
		e.Err, e.context = errOther, context.Canceled
	}
	return e
}

// errOther is the cause of an interrupt of another process.
var errOther = errkind.New(errkind.CancelledError, "another process was interrupted")
