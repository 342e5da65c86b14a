package keyvalue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/handshake"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Remote is a store that a [Server] serves. It is safe for concurrent use, and holds nothing open
// between calls.
type Remote struct {
	network, address, secret string
	patience                 time.Duration
}

var _ pjrt.KeyValueStore = (*Remote)(nil)

// Dial returns the store at a server's address, for one who knows its secret. It connects when it is
// asked: a Get waits for a server that has not started yet, as long as its context, and then for the
// key, as long as the server says that it still does. TryGet and Put end after 30 seconds where their
// context has no deadline. Errors match a [pjrt.Code]: Unavailable if there is no answer,
// PermissionDenied if the secret is another one.
func Dial(network, address, secret string) *Remote { return &Remote{network, address, secret, asking} }

// Get waits until a key has a value, and returns it.
func (r *Remote) Get(ctx context.Context, key string) ([]byte, error) {
	return r.ask(ctx, "get", message{what: opGet, key: key})
}

// TryGet returns the value of a key, or an error that matches [pjrt.NotFound].
func (r *Remote) TryGet(ctx context.Context, key string) ([]byte, error) {
	return r.ask(ctx, "try to get", message{what: opTryGet, key: key})
}

// Put gives a key a value, in the place of an earlier one.
func (r *Remote) Put(ctx context.Context, key string, value []byte) error {
	if len(key) > MaxKey || len(value) > MaxValue {
		return tooLong(key, value)
	}
	_, err := r.ask(ctx, "put", message{what: opPut, key: key, value: value})
	return err
}

// errSilent is the cause of a call whose time is over, where the caller has set none.
var errSilent = errkind.New(errkind.DeadlineExceededError, "keyvalue: the server has said nothing in time")

// ask sends a request and returns the answer's value.
func (r *Remote) ask(ctx context.Context, op string, q message) ([]byte, error) {
	subject := fmt.Sprintf("%q at %s", q.key, r.address)
	caller := ctx
	if _, ok := ctx.Deadline(); !ok && q.what != opGet {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.patience, errSilent)
		defer cancel()
	}
	a, err := r.exchange(ctx, q)
	switch {
	case errors.Is(err, handshake.ErrSecret):
		return nil, &errkind.Fault{Op: "keyvalue: " + op, Subject: subject, Err: err, Match: pjrt.PermissionDenied}
	case err != nil && caller.Err() != nil:
		return nil, &errkind.Fault{Op: "keyvalue: " + op, Subject: subject, Reason: "there was no answer", Err: errors.Join(context.Cause(caller), err), Match: pjrt.Unavailable}
	case err != nil:
		return nil, &errkind.Fault{Op: "keyvalue: " + op, Subject: subject, Reason: "the server does not answer", Err: err, Match: pjrt.Unavailable}
	case a.what != uint32(pjrt.OK):
		return nil, &errkind.Fault{Op: "keyvalue: " + op, Subject: subject, Reason: string(a.value), Err: pjrt.Code(a.what)}
	}
	return a.value, nil
}

// exchange sends a request to the server, once there is one, and waits for its answer.
func (r *Remote) exchange(ctx context.Context, q message) (a message, err error) {
	conn, err := r.connect(ctx)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := q.write(conn); err != nil || q.what != opGet {
		if err == nil {
			a, err = read(conn)
		}
		return a, err
	}
	for {
		if err := conn.SetReadDeadline(time.Now().Add(r.patience)); err != nil {
			return a, err
		}
		if ctx.Err() != nil { // between the two, and the deadline of its end is overwritten
			return a, ctx.Err()
		}
		if a, err = read(conn); err != nil || a.what != stillWaiting {
			return a, err
		}
	}
}

// connect waits for the server, and is let in. One that turns the peer away, or lets it wait, is not
// asked again; one that is not there, or drops the peer among too many others, is.
func (r *Remote) connect(ctx context.Context) (net.Conn, error) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		conn, err := (&net.Dialer{}).DialContext(ctx, r.network, r.address)
		if err == nil {
			if err = handshake.Greet(ctx, conn, r.secret); err == nil {
				return conn, nil
			}
			_ = conn.Close() // the error says more
			if errors.Is(err, handshake.ErrSecret) || errors.Is(err, handshake.ErrProtocol) || errors.Is(err, os.ErrDeadlineExceeded) {
				return nil, err
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, err
		}
	}
}
