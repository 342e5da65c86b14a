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
	"github.com/tpustrategy/tpustrategy/internal/engine/inside"
	"github.com/tpustrategy/tpustrategy/internal/mesh"
	"github.com/tpustrategy/tpustrategy/strategy"
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

// Message is what a process tells the others of its notice. The zero value says that it has none.
type Message struct {
	Reason string `json:"r,omitempty"`
	Left   int64  `json:"l,omitempty"` // milliseconds until its deadline, 0 if that is not known
}

// Message returns what the other processes are told of a notice, which may be nil.
func (n *Notice) Message() (m Message) {
	if n == nil {
		return m
	}
	m.Reason = cmp.Or(strings.ToValidUTF8(n.Reason, ""), "a notice")
	if !n.Deadline.IsZero() {
		m.Left = cmp.Or(time.Until(n.Deadline).Milliseconds(), -1)
	}
	return m
}

// Notice returns the notice of which a process has told, or nil.
func (m Message) Notice(process int) *Notice {
	if m.Reason == "" {
		return nil
	}
	n := &Notice{Reason: fmt.Sprintf("process %d: %s", process, m.Reason)}
	if m.Left != 0 {
		n.Deadline = time.Now().Add(time.Duration(m.Left) * time.Millisecond)
	}
	return n
}

// ballot is what a process tells the others.
type ballot struct {
	Seconds float64 `json:"s,omitempty"` // of a step
	Message
}

// mostBytes bounds a ballot, in bytes.
const mostBytes = 400

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
	b := ballot{a.seconds, mine.Message()}
	message, err := json.Marshal(b)
	for len(message) > mostBytes {
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
		if a.agreed == nil && i == a.strategy.Process() && b.Reason != "" && mine != nil {
			a.agreed = mine
		}
		a.agreed = cmp.Or(a.agreed, b.Notice(i))
	}
	if slowest > 0 {
		a.every = min(max(1, int64(min(pace.Seconds()/slowest, most))), 2*a.every)
	}
	a.due = a.read
	return nil
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
	if a == nil || a.under == nil {
		return nil
	}
	under := a.under
	a.under = nil
	return under.Close()
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
