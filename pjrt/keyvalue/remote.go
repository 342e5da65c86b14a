package keyvalue

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// Remote is a store that a [Server] serves. It is safe for concurrent use, and holds nothing open
// between calls.
type Remote struct{ network, address, secret string }

var _ pjrt.KeyValueStore = (*Remote)(nil)

// Dial returns the store at a server's address. It connects when it is asked: a Get waits for a
// server that has not started yet, as long as its context.
func Dial(network, address, secret string) *Remote { return &Remote{network, address, secret} }

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

// starting is how long TryGet and Put wait for a server that has not started yet, where their
// context does not end before.
const starting = 30 * time.Second

// ask sends a request and returns the answer's value.
func (r *Remote) ask(ctx context.Context, op string, q message) ([]byte, error) {
	failed := func(reason string, err error) error {
		return &errkind.Fault{Op: "keyvalue: " + op, Subject: fmt.Sprintf("%q at %s", q.key, r.address), Reason: reason, Err: err, Match: pjrt.Unavailable}
	}
	conn, err := r.connect(ctx, q.what == opGet)
	if err != nil {
		return nil, failed("the server cannot be reached", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	q.secret = r.secret
	var a message
	if err = q.write(conn); err == nil {
		a, err = read(conn)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, &errkind.Fault{Op: "keyvalue: " + op, Subject: fmt.Sprintf("%q at %s", q.key, r.address), Err: context.Cause(ctx)}
	case err != nil:
		return nil, failed("the server does not answer", err)
	case a.what != uint32(pjrt.OK):
		return nil, &errkind.Fault{Op: "keyvalue: " + op, Subject: fmt.Sprintf("%q at %s", q.key, r.address), Reason: string(a.value), Err: pjrt.Code(a.what)}
	}
	return a.value, nil
}

// connect waits for the server.
func (r *Remote) connect(ctx context.Context, forever bool) (net.Conn, error) {
	if !forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, starting)
		defer cancel()
	}
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		conn, err := (&net.Dialer{}).DialContext(ctx, r.network, r.address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil, err
		}
	}
}
