package interrupt

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/internal/inside"
)

// Agreement lets the processes of a strategy agree on the step after which they stop. Every process
// has one, and calls it after the same steps. One goroutine uses it at a time.
type Agreement struct {
	strategy *strategy.TPUStrategy
	// every is the number of steps between two exchanges, the same on all processes. due is the
	// step after which the next one begins, and read that after which the one under way is read.
	every, due, read int64
	under            *mesh.GatherFuture
	// sent is the step of the exchange under way. back is when the one before was read, and from
	// the step after which it began: between them lies the time of the steps.
	sent, from int64
	back       time.Time
	seconds    float64 // of a step, as measured here
	agreed     *Notice
	now        func() time.Time
}

// gatherer is what this package uses of a strategy beside the contract.
type gatherer interface {
	// StartGather begins a [strategy.TPUStrategy.GatherBytes] and does not wait for it: the exchange is
	// a launch among the steps, whose result is read some steps later. The bytes together with the
	// name are 497 at the most.
	StartGather(ctx context.Context, name string, mine []byte) (*mesh.GatherFuture, error)
}

var _ = inside.Of[gatherer]((*strategy.TPUStrategy)(nil))

// pace is the time between two exchanges, as far as the steps allow; most bounds their number.
const (
	pace = 500 * time.Millisecond
	most = 1 << 12
)

// NewAgreement returns the agreement of the processes of a strategy.
func NewAgreement(s *strategy.TPUStrategy) *Agreement {
	return &Agreement{strategy: s, every: 1, now: time.Now}
}

// ballot is what a process tells the others.
type ballot struct {
	Seconds float64 `json:"s,omitempty"` // of a step
	Reason  string  `json:"r,omitempty"` // of its notice; "" is none
	Left    int64   `json:"l,omitempty"` // milliseconds until its deadline, 0 if that is not known
}

// longest bounds a reason among the ballots, and mostBytes a ballot, in bytes.
const longest, mostBytes = 160, 400

// After is called after each step, with the step's number, and reports whether all processes stop
// here: a notice has ended the context of one of them. A process alone stops at once.
//
// The wait for the others is not ended by ctx. An error says that they cannot be reached, or are at
// another call.
func (a *Agreement) After(ctx context.Context, step int64) (stop bool, err error) {
	if a.strategy.NumProcesses() <= 1 && ctx.Err() == nil {
		return a.agreed != nil, nil
	}
	n, err := a.Vote(context.WithoutCancel(ctx), step, Of(ctx), math.MaxInt64)
	return n != nil, err
}

// Vote is [Agreement.After] with all it looks at given: mine is this process's notice, or nil, and
// ctx bounds the waits. before is a step, the same on all processes, after which they meet anyway
// and call Met: an exchange that would be read no sooner is left out. Vote returns what has stopped
// the processes: the notice of this one, or one that names the process that has it.
func (a *Agreement) Vote(ctx context.Context, step int64, mine *Notice, before int64) (*Notice, error) {
	if a.agreed != nil {
		return a.agreed, nil
	}
	if a.strategy.NumProcesses() <= 1 {
		a.agreed = mine
		return mine, nil
	}
	if a.under != nil && step >= a.read {
		if err := a.collect(ctx, mine); err != nil || a.agreed != nil {
			return a.agreed, err
		}
	}
	if a.under != nil || step < a.due || step > before-a.every {
		return nil, nil
	}
	b := ballot{Seconds: a.seconds}
	if mine != nil {
		b.Reason, b.Left = mine.text(), mine.left(a.now())
	}
	message, err := json.Marshal(b)
	for len(message) > mostBytes { // what JSON escapes
		b.Reason = strings.ToValidUTF8(b.Reason[:len(b.Reason)/2], "")
		message, err = json.Marshal(b)
	}
	if err != nil {
		return nil, &errkind.Fault{Op: "interrupt: vote", Err: err, Class: errkind.InternalError}
	}
	a.under, err = inside.Of[gatherer](a.strategy).StartGather(ctx, "notices", message)
	if err != nil {
		return nil, &errkind.Fault{Op: "interrupt: vote", Subject: "after step " + number(step), Err: err}
	}
	a.sent, a.read = step, step+a.every
	return nil, nil
}

// collect reads the exchange under way, and learns how many steps the next one takes.
func (a *Agreement) collect(ctx context.Context, mine *Notice) error {
	all, err := a.under.Wait(ctx)
	if err = errors.Join(err, a.under.Close()); err != nil {
		return &errkind.Fault{Op: "interrupt: vote", Subject: "after step " + number(a.sent), Err: err}
	}
	a.under = nil
	now := a.now()
	if !a.back.IsZero() && a.sent > a.from {
		a.seconds = now.Sub(a.back).Seconds() / float64(a.sent-a.from)
	}
	a.back, a.from = now, a.sent
	slowest := 0.0
	for i, text := range all {
		var b ballot
		if err := json.Unmarshal(text, &b); err != nil {
			return &errkind.Fault{Op: "interrupt: vote", Subject: fmt.Sprintf("of process %d", i), Err: err, Class: errkind.InternalError,
				Hint: "start the same program on each process"}
		}
		slowest = max(slowest, b.Seconds)
		if b.Reason != "" && a.agreed == nil {
			a.agreed = a.notice(i, b.Reason, b.Left, mine)
		}
	}
	if slowest > 0 {
		a.every = min(max(1, int64(min(pace.Seconds()/slowest, most))), 2*a.every)
	}
	a.due = a.read
	return nil
}

// notice is what stopped the processes, as this one has it.
func (a *Agreement) notice(process int, reason string, left int64, mine *Notice) *Notice {
	if process == a.strategy.Process() && mine != nil {
		return mine
	}
	n := &Notice{Reason: fmt.Sprintf("process %d: %s", process, reason)}
	if left != 0 {
		n.Deadline = a.now().Add(time.Duration(left) * time.Millisecond)
	}
	return n
}

// Met says that the processes have met after a step in another way, in which they told each other
// of their notices: what is under way is dropped, and the next exchange is as far away as after one
// of its own.
func (a *Agreement) Met(step int64) error {
	a.due, a.back = step+a.every, time.Time{}
	return a.Close()
}

// Close releases an exchange under way. The agreement can be used again.
func (a *Agreement) Close() error {
	if a.under == nil {
		return nil
	}
	under := a.under
	a.under = nil
	return under.Close()
}

// text is the reason in one line of bounded length.
func (n *Notice) text() string {
	reason := strings.ToValidUTF8(n.Reason[:min(len(n.Reason), longest)], "")
	if reason == "" {
		return "a notice"
	}
	return reason
}

// left is the time to the deadline in milliseconds, 0 if it is not known.
func (n *Notice) left(now time.Time) int64 {
	if n.Deadline.IsZero() {
		return 0
	}
	if left := n.Deadline.Sub(now).Milliseconds(); left != 0 {
		return left
	}
	return -1
}

// Stopped returns the error of a loop that stopped after a step and has saved what it did.
func (a *Agreement) Stopped(step int64) error {
	n := a.agreed
	if n == nil {
		n = &Notice{Reason: "no process has a notice"}
	}
	return &Error{Step: step, Notice: n}
}

func number(step int64) string { return strconv.FormatInt(step, 10) }
