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

// Client is a key-value store that a [Server] in another process provides. It is safe for
// concurrent use. It has no open connections between calls.
type Client struct {
	network, address, secret string
	timeout                  time.Duration
}

var _ pjrt.KeyValueStore = (*Client)(nil)

// Dial returns a client for the server at an address. It does not connect; each call of a method
// opens a connection. Get waits until the server has started or its context ends, and then waits
// for the key as long as the server responds. TryGet and Put have a timeout of 30 seconds if their
// context has no deadline. Errors match a [pjrt.Code]: Unavailable if the server does not respond,
// and PermissionDenied if the secret is wrong.
func Dial(network, address, secret string) *Client {
	return &Client{network, address, secret, requestTimeout}
}

// Get waits until the key has a value, and returns the value.
func (r *Client) Get(ctx context.Context, key string) ([]byte, error) {
	return r.call(ctx, "get", message{code: opGet, key: key})
}

// TryGet returns the value of a key, or an error that matches [pjrt.NotFound].
func (r *Client) TryGet(ctx context.Context, key string) ([]byte, error) {
	return r.call(ctx, "try to get", message{code: opTryGet, key: key})
}

// Put sets the value of a key.
func (r *Client) Put(ctx context.Context, key string, value []byte) error {
	if len(key) > MaxKeyBytes || len(value) > MaxValueBytes {
		return sizeError(key, value)
	}
	_, err := r.call(ctx, "put", message{code: opPut, key: key, value: value})
	return err
}

// errTimeout is the cause of a timeout of a call whose context has no deadline.
var errTimeout = errkind.New(errkind.DeadlineExceededError, "keyvalue: the server did not respond in time")

// call sends a request and returns the value in the response. op is the operation in errors.
func (r *Client) call(ctx context.Context, op string, request message) ([]byte, error) {
	subject := fmt.Sprintf("%q at %s", request.key, r.address)
	caller := ctx
	if _, ok := ctx.Deadline(); !ok && request.code != opGet {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.timeout, errTimeout)
		defer cancel()
	}
	response, err := r.exchange(ctx, request)
	switch {
	case errors.Is(err, handshake.ErrSecret):
		return nil, &errkind.Fault{Op: "keyvalue: " + op, Subject: subject, Err: err, Match: pjrt.PermissionDenied}
	case err != nil && caller.Err() != nil:
		return nil, &errkind.Fault{Op: "keyvalue: " + op, Subject: subject, Reason: "there was no response",
			Err: errors.Join(context.Cause(caller), err), Match: pjrt.Unavailable}
	case err != nil:
		return nil, &errkind.Fault{Op: "keyvalue: " + op, Subject: subject, Reason: "the server does not respond",
			Err: err, Match: pjrt.Unavailable}
	case response.code != uint32(pjrt.OK):
		return nil, &errkind.Fault{Op: "keyvalue: " + op, Subject: subject, Reason: string(response.value),
			Err: pjrt.Code(response.code)}
	}
	return response.value, nil
}

// exchange connects to the server, sends a request and waits for the response.
func (r *Client) exchange(ctx context.Context, request message) (response message, err error) {
	conn, err := r.connect(ctx)
	if err != nil {
		return response, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := request.write(conn); err != nil || request.code != opGet {
		if err == nil {
			response, err = readMessage(conn)
		}
		return response, err
	}
	for {
		if err := conn.SetReadDeadline(time.Now().Add(r.timeout)); err != nil {
			return response, err
		}
		if ctx.Err() != nil { // SetReadDeadline may have overwritten the deadline that AfterFunc set
			return response, ctx.Err()
		}
		if response, err = readMessage(conn); err != nil || response.code != codeKeepAlive {
			return response, err
		}
	}
}

// connect connects to the server and authenticates. It retries if the server is not available or
// closes the connection, but not if authentication fails or times out.
func (r *Client) connect(ctx context.Context) (net.Conn, error) {
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		conn, err := (&net.Dialer{}).DialContext(ctx, r.network, r.address)
		if err == nil {
			if err = handshake.Authenticate(ctx, conn, r.secret); err == nil {
				return conn, nil
			}
			_ = conn.Close()
			if errors.Is(err, handshake.ErrSecret) || errors.Is(err, handshake.ErrProtocol) ||
				errors.Is(err, os.ErrDeadlineExceeded) {
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
