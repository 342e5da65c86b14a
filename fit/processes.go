package fit

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/fit/interrupt"
	"github.com/tpustrategy/tpustrategy/fit/watchdog"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// vote is the message that each process sends to the other processes after a step whose loss it has
// read.
type vote struct {
	Failed string `json:",omitempty"` // text of the process's error
	// ResumeRefused reports that the error of Failed matches ErrResume.
	ResumeRefused bool `json:",omitempty"`
	// Kind is the kind of the error of Failed.
	Kind   errkind.Kind      `json:",omitempty"`
	Stop   string            `json:",omitempty"`
	Notice interrupt.Message `json:",omitzero"` // interrupt notice of the process
	// Keep reports for each hook whether it saves. All processes use the Keep of process 0.
	Keep []bool `json:",omitempty"`
}

// exchangeVotes exchanges the errors and interrupts of the processes. If one process has an error
// or was interrupted, all processes return an error. If a hook of one process stops the run, all
// processes stop. keep contains, for each hook, whether it saves variables; exchangeVotes
// overwrites it with the decisions of process 0.
func (r *runner) exchangeVotes(ctx context.Context, mine error, keep []bool) error {
	if !r.isMultiProcess() {
		return mine
	}
	own := interrupt.FromContext(ctx)
	v := newVote(mine)
	v.Stop, v.Keep, v.Notice = r.state.stopReason, keep, own.Message()
	message, err := json.Marshal(v)
	if err != nil {
		return errors.Join(mine, err)
	}
	r.setActivity(watchdog.Exchange, "fit: after a step")
	all, err := r.strategy.GatherBytes(r.withoutInterrupt(ctx), fmt.Sprintf("fit: after step %d", r.state.step), message)
	// After a failed exchange the processes are in different operations.
	if r.inAgreement = err == nil; err != nil {
		return errors.Join(mine, err)
	}
	if err := r.agreement.MarkExchanged(r.state.step); err != nil {
		return errors.Join(mine, err)
	}
	votes, err := parseVotes("fit: agree", all)
	if err != nil {
		return errors.Join(mine, err)
	}
	notice := own
	for i, v := range votes {
		if v.Failed != "" && mine == nil {
			mine = v.remoteError(i)
		}
		if v.Stop != "" {
			r.state.Stop(v.Stop)
		}
		notice = cmp.Or(notice, v.Notice.Notice(i))
		if i == 0 {
			copy(keep, v.Keep)
		}
	}
	if mine == nil && notice != nil {
		return r.interruptError(ctx, notice)
	}
	return mine
}

// checkSameOptions returns an error if the processes have different options. It runs first, so that
// no process later waits for an exchange that the other processes never begin.
func (r *runner) checkSameOptions(ctx context.Context) error {
	if !r.isMultiProcess() {
		return nil
	}
	o := r.options
	text := fmt.Sprintf("steps %d, epochs %d, a record every %d steps", o.Steps, o.Epochs, o.Every)
	for _, name := range slices.Sorted(maps.Keys(o.Settings)) {
		text += fmt.Sprintf("; %s %s", name, o.Settings[name])
	}
	r.setActivity(watchdog.Exchange, "fit: the settings")
	err := r.strategy.CheckSame(r.withoutInterrupt(ctx), "the settings of the run", text)
	mismatch := (*strategy.MismatchError)(nil)
	r.inAgreement = err == nil || errors.As(err, &mismatch)
	return err
}

// checkInterrupts checks between records whether any process was interrupted. If so, it returns an
// error after the same step on all processes. It does not wait for the devices.
func (r *runner) checkInterrupts(ctx context.Context) error {
	if !r.isMultiProcess() {
		return nil // the loop checks the context
	}
	notice, err := r.agreement.Vote(r.withoutInterrupt(ctx), r.state.step, interrupt.FromContext(ctx), r.nextDue)
	if err != nil || notice == nil {
		return err
	}
	r.inAgreement = true
	return r.interruptError(ctx, notice)
}

// interruptError returns an error for a run that was interrupted by its own context or by the
// notice of another process.
func (r *runner) interruptError(ctx context.Context, notice *interrupt.Notice) error {
	if err := r.watchdogError(); err != nil && ctx.Err() != nil {
		return err
	}
	return &interrupt.Error{Step: r.state.step, Notice: cmp.Or(interrupt.FromContext(ctx), notice),
		Unsaved: r.saver == nil}
}

// warnDeadline logs a warning if the deadline of the notice is closer than the duration of the last
// save.
func (r *runner) warnDeadline(notice *interrupt.Notice) {
	if remaining := time.Until(notice.Deadline); !notice.Deadline.IsZero() && remaining < r.saver.lastDuration {
		r.log.Warn("fit: the checkpoint may not be complete before the process is ended", "reason", notice.Reason,
			"left", remaining.Round(time.Millisecond), "last save took", r.saver.lastDuration.Round(time.Millisecond),
			"last checkpoint", max(r.savedStep, 0))
	}
}

// gatherErrors returns the errors of all processes, or nil if there are none. An error of another
// process has the text and kind of the original error and names the process.
func (r *runner) gatherErrors(ctx context.Context, name string, localErr error) (errs []error, err error) {
	if !r.isMultiProcess() {
		if localErr != nil {
			errs = []error{localErr}
		}
		return errs, nil
	}
	message, err := json.Marshal(newVote(localErr))
	if err != nil {
		return nil, err
	}
	all, err := r.gather(ctx, name, message)
	if err != nil {
		return nil, err
	}
	votes, err := parseVotes(name, all)
	if err != nil {
		return nil, err
	}
	for i, v := range votes {
		switch {
		case v.Failed == "":
		case i == r.strategy.Process():
			errs = append(errs, localErr)
		default:
			errs = append(errs, v.remoteError(i))
		}
	}
	return errs, nil
}

func newVote(err error) (v vote) {
	if err != nil {
		v.Failed, v.Kind, v.ResumeRefused = err.Error(), errkind.KindOr(err, errkind.RuntimeError), errors.Is(err, ErrResume)
	}
	return v
}

func parseVotes(op string, messages [][]byte) ([]vote, error) {
	votes := make([]vote, len(messages))
	for i, message := range messages {
		if err := json.Unmarshal(message, &votes[i]); err != nil {
			return nil, &errkind.Fault{Op: op, Subject: fmt.Sprintf("process %d", i), Err: err, Class: errkind.InternalError}
		}
	}
	return votes, nil
}

func (v vote) remoteError(process int) error {
	failed := &errkind.Fault{Op: fmt.Sprintf("fit: process %d", process), Reason: v.Failed,
		Hint: "see the error of that process", Class: v.Kind}
	if v.ResumeRefused {
		failed.Match = ErrResume
	}
	return failed
}

// gather sends the message of this process (mine) to all processes and returns the messages of all
// processes. Long messages are sent in several exchanges.
func (r *runner) gather(ctx context.Context, name string, mine []byte) ([][]byte, error) {
	const maxPiece = 1 << 19
	all := make([][]byte, r.strategy.NumProcesses())
	for more := true; more; {
		piece := mine[:min(len(mine), maxPiece)]
		mine = mine[len(piece):]
		message := binary.AppendUvarint(nil, uint64(len(mine))) // the remaining length
		pieces, err := r.strategy.GatherBytes(ctx, name, append(message, piece...))
		if err != nil {
			return nil, err
		}
		more = false
		for i, piece := range pieces {
			rest, n := binary.Uvarint(piece)
			if n <= 0 {
				return nil, &errkind.Fault{Op: "fit: " + name, Subject: fmt.Sprintf("process %d", i),
					Reason: "it sent no message", Class: errkind.InternalError}
			}
			all[i] = append(all[i], piece[n:]...)
			more = more || rest > 0
		}
	}
	return all, nil
}
