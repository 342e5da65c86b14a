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
	// beat is the interval between a host's heartbeats.
	beat = time.Second
	// grace is the time that the machine has to answer a canceled call.
	grace = 3 * time.Second
	// maxCallsHere limits the concurrent calls of a host. It is less than maxCalls.
	maxCallsHere = 32
)

// link is the connection of a host to the machine.
type link struct {
	conn     net.Conn
	host     Host
	maxBytes int64
	silence  time.Duration // time without a message after which the machine counts as dead
	slots    chan struct{}
	heard    atomic.Int64 // time of the machine's last message
	dead     chan struct{}

	writing sync.Mutex

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]chan answer
	err     error // the reason why the link is closed
}

// answer is the reply to a call.
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

// read delivers replies to their callers until the connection ends.
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

// beat sends heartbeats. It closes the link if the machine has been silent for too long.
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
		// A call that is writing replaces the heartbeat.
		if l.writing.TryLock() {
			err := writeFrame(l.conn, request{Op: opPing})
			l.writing.Unlock()
			if err != nil {
				return // read reports the error
			}
		}
	}
}

// end closes the connection. All later calls return the error of the first call of end.
func (l *link) end(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = err
	close(l.dead)
	_ = l.conn.Close() // the connection is discarded
}

// failed returns the reason why the link is closed, or nil.
func (l *link) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// call sends a request and waits for the reply. If ctx ends first, call asks the machine to cancel
// the request.
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

// result converts an answer to the results of call.
func (a answer) result(ctx context.Context, op string) (reply, []byte, error) {
	if a.Error != nil {
		return a.reply, nil, a.Error.err(ctx, op)
	}
	return a.reply, a.body, nil
}

// write writes a frame. If ctx ends in the middle of a frame and the machine does not accept the
// rest, the connection is closed, because it is no longer usable.
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
