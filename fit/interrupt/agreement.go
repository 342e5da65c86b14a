package interrupt

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// Agreement lets the processes of a strategy agree on the step after which they stop. Every process
// must create an Agreement and call AfterStep after the same steps. It is not safe for concurrent
// use.
type Agreement struct {
	strategy *strategy.TPUStrategy
	// interval is the number of steps between two exchanges, the same on all processes. nextSend is
	// the step after which the next exchange begins, and readStep is the step after which the
	// current exchange is read.
	interval, nextSend, readStep int64
	pending                      *engine.GatherFuture
	// sentStep is the step of the current exchange. lastRead is the time when the previous exchange
	// was read, and lastStep is the step of that exchange. The step time is measured between them.
	sentStep, lastStep int64
	lastRead           time.Time
	stepSeconds        float64 // measured time of a step
	notice             *Notice
	now                func() time.Time
}

// exchangeInterval is the target time between two exchanges. maxSteps is the maximum number of
// steps between them.
const (
	exchangeInterval = 500 * time.Millisecond
	maxSteps         = 1 << 12
)

// NewAgreement returns an Agreement for the processes of a strategy.
func NewAgreement(s *strategy.TPUStrategy) *Agreement {
	return &Agreement{strategy: s, interval: 1, now: time.Now}
}

// Message is the encoding of a [Notice] that is sent to other processes. The zero value means no
// notice.
type Message struct {
	Reason   string `json:"r,omitempty"`
	TimeLeft int64  `json:"l,omitempty"` // milliseconds until the deadline, 0 if it is not known
}

// Message encodes the notice for other processes. It returns the zero Message if n is nil.
func (n *Notice) Message() (m Message) {
	if n == nil {
		return m
	}
	m.Reason = cmp.Or(strings.ToValidUTF8(n.Reason, ""), "a notice")
	if !n.Deadline.IsZero() {
		m.TimeLeft = cmp.Or(time.Until(n.Deadline).Milliseconds(), -1)
	}
	return m
}

// Notice decodes a message that was received from a process. It returns nil for the zero message,
// which a process sends if it has not received a notice.
func (m Message) Notice(process int) *Notice {
	if m.Reason == "" {
		return nil
	}
	n := &Notice{Reason: fmt.Sprintf("process %d: %s", process, m.Reason)}
	if m.TimeLeft != 0 {
		n.Deadline = time.Now().Add(time.Duration(m.TimeLeft) * time.Millisecond)
	}
	return n
}

// ballot is the message that each process sends in an exchange.
type ballot struct {
	Seconds float64 `json:"s,omitempty"` // measured time of a step
	Message
}

// maxBallotBytes limits the size of an encoded ballot.
const maxBallotBytes = 400

// AfterStep reports whether all processes stop after this step. They stop if a notice has ended the
// context of at least one process. The loop must call AfterStep after each step with the number of
// the step. A single process stops immediately.
//
// After ctx has ended, AfterStep still waits for the other processes. An error means that the
// processes cannot be reached or are in another operation.
func (a *Agreement) AfterStep(ctx context.Context, step int64) (stop bool, err error) {
	if a.strategy.NumProcesses() <= 1 && ctx.Err() == nil {
		return a.notice != nil, nil
	}
	n, err := a.Vote(context.WithoutCancel(ctx), step, FromContext(ctx), math.MaxInt64)
	return n != nil, err
}

// Vote is like [Agreement.AfterStep], but receives this process's notice, or nil, as the argument
// own, and stops waiting when ctx ends. After the step before, which must be the same on all
// processes, the caller exchanges the notices by other means and calls MarkExchanged. Vote
// therefore starts no exchange that would be read after that step. It returns the notice that
// stopped the processes: own, or a notice whose reason names another process.
func (a *Agreement) Vote(ctx context.Context, step int64, own *Notice, before int64) (*Notice, error) {
	if a.notice != nil {
		return a.notice, nil
	}
	if a.strategy.NumProcesses() <= 1 {
		a.notice = own
		return own, nil
	}
	if a.pending != nil && step >= a.readStep {
		if err := a.readExchange(ctx, own); err != nil || a.notice != nil {
			return a.notice, err
		}
	}
	if a.pending != nil || step < a.nextSend || step > before-a.interval {
		return nil, nil
	}
	b := ballot{a.stepSeconds, own.Message()}
	message, err := json.Marshal(b)
	for len(message) > maxBallotBytes {
		b.Reason = strings.ToValidUTF8(b.Reason[:len(b.Reason)/2], "")
		message, err = json.Marshal(b)
	}
	if err != nil {
		return nil, &errkind.Fault{Op: "interrupt: vote", Err: err, Class: errkind.InternalError}
	}
	a.pending, err = engine.Internal(a.strategy).StartGather(ctx, "notices", message)
	if err != nil {
		return nil, &errkind.Fault{Op: "interrupt: vote", Subject: "after step " + formatStep(step), Err: err}
	}
	a.sentStep, a.readStep = step, step+a.interval
	return nil, nil
}

// readExchange reads the result of the current exchange and computes the number of steps until the
// next one.
func (a *Agreement) readExchange(ctx context.Context, own *Notice) error {
	messages, err := a.pending.Wait(ctx)
	if err = errors.Join(err, a.pending.Close()); err != nil {
		return &errkind.Fault{Op: "interrupt: vote", Subject: "after step " + formatStep(a.sentStep), Err: err}
	}
	a.pending = nil
	now := a.now()
	if !a.lastRead.IsZero() && a.sentStep > a.lastStep {
		a.stepSeconds = now.Sub(a.lastRead).Seconds() / float64(a.sentStep-a.lastStep)
	}
	a.lastRead, a.lastStep = now, a.sentStep
	slowest := 0.0
	for i, text := range messages {
		var b ballot
		if err := json.Unmarshal(text, &b); err != nil {
			return &errkind.Fault{Op: "interrupt: vote", Subject: fmt.Sprintf("of process %d", i), Err: err,
				Class: errkind.InternalError,
				Hint:  "start the same program on each process"}
		}
		slowest = max(slowest, b.Seconds)
		if a.notice == nil && i == a.strategy.Process() && b.Reason != "" && own != nil {
			a.notice = own
		}
		a.notice = cmp.Or(a.notice, b.Notice(i))
	}
	if slowest > 0 {
		a.interval = min(max(1, int64(min(exchangeInterval.Seconds()/slowest, maxSteps))), 2*a.interval)
	}
	a.nextSend = a.readStep
	return nil
}

// MarkExchanged records that the processes exchanged their notices after a step without the
// Agreement. It cancels the current exchange and schedules the next one.
func (a *Agreement) MarkExchanged(step int64) error {
	a.nextSend, a.lastRead = step+a.interval, time.Time{}
	return a.Close()
}

// Close releases the current exchange. The Agreement remains usable.
func (a *Agreement) Close() error {
	if a == nil || a.pending == nil {
		return nil
	}
	pending := a.pending
	a.pending = nil
	return pending.Close()
}

// StopError returns the error for a loop that stopped after a step and saved a checkpoint.
func (a *Agreement) StopError(step int64) error {
	n := a.notice
	if n == nil {
		n = &Notice{Reason: "no process has a notice"}
	}
	return &Error{Step: step, Notice: n}
}

func formatStep(step int64) string { return strconv.FormatInt(step, 10) }
