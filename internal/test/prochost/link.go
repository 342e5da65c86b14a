package prochost

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// beat is how often a host says that it lives.
	beat = time.Second
	// grace is how long a machine may take to answer a call that was given up.
	grace = 3 * time.Second
	// maxCallsHere bounds the calls of a host that are under way. It is under maxCalls.
	maxCallsHere = 32
)

// link is the connection of a host to the machine.
type link struct {
	conn     net.Conn
	host     Host
	maxBytes int64
	silence  time.Duration // after which the machine counts as gone
	slots    chan struct{}
	heard    atomic.Int64 // when the machine was heard last
	dead     chan struct{}

	writing sync.Mutex

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan answer
	err     error // why it is dead
}

// answer is what came for a call.
type answer struct {
	reply
	body []byte
}

func newLink(conn net.Conn, h Host, w *welcome) *link {
	l := &link{conn: conn, host: h, maxBytes: w.MaxBytes, silence: max(w.Patience, 10*time.Second),
		slots: make(chan struct{}, maxCallsHere), dead: make(chan struct{}), waiting: map[uint64]chan answer{}}
	l.heard.Store(time.Now().UnixNano())
	go l.read()
	go l.beat()
	return l
}

// read takes what the machine says, until it ends.
func (l *link) read() {
	for {
		var a reply
		body, err := readFrame(l.conn, &a, l.maxBytes)
		if err != nil {
			l.end(&MachineError{Address: l.host.Address, Op: "connection", Reason: "it has ended, or has cut this host off",
				Err: err})
			return
		}
		l.heard.Store(time.Now().UnixNano())
		l.mu.Lock()
		to := l.waiting[a.ID]
		delete(l.waiting, a.ID)
		l.mu.Unlock()
		if to != nil {
			to <- answer{a, body}
		}
	}
}

// beat says that the host lives, and notices when the machine no longer does.
func (l *link) beat() {
	every := time.NewTicker(beat)
	defer every.Stop()
	for {
		select {
		case <-l.dead:
			return
		case <-every.C:
		}
		if quiet := time.Since(time.Unix(0, l.heard.Load())); quiet > l.silence {
			l.end(&MachineError{Address: l.host.Address, Op: "connection", Reason: fmt.Sprintf("it has said nothing for %v",
				quiet.Round(time.Second))})
			return
		}
		// Where a call is writing, that tells as much.
		if l.writing.TryLock() {
			err := writeFrame(l.conn, request{Op: opPing})
			l.writing.Unlock()
			if err != nil {
				return // read knows
			}
		}
	}
}

// end ends the connection. The first error is what all calls get from then on.
func (l *link) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	close(l.dead)
	_ = l.conn.Close() // its end is what is wanted
}

// failed is why the link is dead.
func (l *link) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// call asks the machine and waits for its answer. If ctx ends first the machine gives the call up.
func (l *link) call(ctx context.Context, q request, body ...[]byte) (reply, []byte, error) {
	select {
	case l.slots <- struct{}{}:
		defer func() { <-l.slots }()
	case <-ctx.Done():
		return reply{}, nil, fail(q.Op, context.Cause(ctx))
	}
	to := make(chan answer, 1)
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return reply{}, nil, l.failed()
	}
	l.last++
	q.ID = l.last
	l.waiting[q.ID] = to
	l.mu.Unlock()
	if err := l.write(ctx, q, body); err != nil {
		return reply{}, nil, err
	}
	select {
	case a := <-to:
		return a.result(ctx, q.Op)
	case <-l.dead:
		return reply{}, nil, l.failed()
	case <-ctx.Done():
	}
	go func() {
		_ = l.write(context.Background(), request{Op: opCancel, Cancel: q.ID, Deadline: errors.Is(ctx.Err(),
			context.DeadlineExceeded)}, nil)
	}()
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case a := <-to:
		return a.result(ctx, q.Op)
	case <-l.dead:
		return reply{}, nil, l.failed()
	case <-late.C:
		return reply{}, nil, &MachineError{Address: l.host.Address, Op: q.Op, Reason: "it does not answer",
			Err: context.Cause(ctx)}
	}
}

// result is an answer as the caller gets it.
func (a answer) result(ctx context.Context, op string) (reply, []byte, error) {
	if a.Error != nil {
		return a.reply, nil, a.Error.err(ctx, op)
	}
	return a.reply, a.body, nil
}

// write writes a frame. Where ctx ends in the middle of it and the machine does not take the rest,
// the connection is of no use any more.
func (l *link) write(ctx context.Context, q request, body [][]byte) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	written := make(chan struct{})
	defer close(written)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-written:
		case <-time.After(grace):
			l.end(&MachineError{Address: l.host.Address, Op: q.Op, Reason: "it takes no requests", Err: context.Cause(ctx)})
		}
	})
	defer stop()
	if err := writeFrame(l.conn, q, body...); err != nil {
		l.end(&MachineError{Address: l.host.Address, Op: q.Op, Reason: "it takes no requests", Err: err})
		return l.failed()
	}
	return nil
}
