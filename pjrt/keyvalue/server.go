package keyvalue

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/handshake"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// asking is how long a peer may take to say what it wants, and to take the answer.
const asking = 30 * time.Second

// beat is how often the server says of a request that it still waits for its key.
const beat = 5 * time.Second

// Server serves a store at an address.
type Server struct {
	store    pjrt.KeyValueStore
	listener *handshake.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	serving  sync.WaitGroup
}

// Listen serves a store on a "tcp" or "unix" address to those who know the secret, which must not be
// empty. A TCP address without a host, such as ":8479", is reached from this machine only: who wants
// to be reached by others names the interface, or all of them by "0.0.0.0:8479".
func Listen(network, address string, store pjrt.KeyValueStore, secret string) (*Server, error) {
	listener, err := handshake.Listen(network, address, secret, nil)
	if err != nil {
		return nil, &errkind.Fault{Op: "keyvalue: listen", Err: err}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{store: store, listener: listener, ctx: ctx, cancel: cancel}
	s.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // it is closed
			}
			s.serving.Go(func() { s.serve(conn) })
		}
	})
	return s, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends the server, and all waits for keys.
func (s *Server) Close() error {
	if s == nil || s.listener == nil {
		return nil
	}
	err := s.listener.Close()
	s.cancel()
	s.serving.Wait()
	return err
}

// serve answers the request of a connection, if it has one.
func (s *Server) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer conn.Close()
	defer context.AfterFunc(s.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if conn.SetDeadline(time.Now().Add(asking)) != nil {
		return
	}
	q, err := read(conn)
	if err != nil {
		return // it is no client
	}
	var value []byte
	switch q.what {
	case opGet:
		_ = conn.SetReadDeadline(time.Time{})
		s.serving.Go(func() { // a client that goes away waits no longer
			var none [1]byte
			_, _ = conn.Read(none[:])
			cancel()
		})
		value, err = s.wait(ctx, conn, q.key)
	case opTryGet:
		value, err = s.store.TryGet(ctx, q.key)
	case opPut:
		err = s.store.Put(ctx, q.key, q.value)
	default:
		err = &errkind.Fault{Op: "keyvalue: serve", Reason: "there is no such request", Err: pjrt.InvalidArgument}
	}
	a := message{value: value}
	if err != nil {
		a.what, a.value = uint32(codeOf(err)), []byte(err.Error())
	}
	_ = conn.SetWriteDeadline(time.Now().Add(asking))
	_ = a.write(conn) // who does not take it is gone
}

// wait waits for a key, and tells the client that it does.
func (s *Server) wait(ctx context.Context, conn net.Conn, key string) (value []byte, err error) {
	got := make(chan struct{})
	s.serving.Go(func() {
		value, err = s.store.Get(ctx, key)
		close(got)
	})
	every := time.NewTicker(beat)
	defer every.Stop()
	for {
		select {
		case <-got:
			return value, err
		case <-every.C:
			_ = conn.SetWriteDeadline(time.Now().Add(asking))
			if (message{what: stillWaiting}).write(conn) != nil {
				_ = conn.Close() // the wait ends with it
				<-got
				return value, err
			}
		}
	}
}

// codeOf is the code of an error of a store.
func codeOf(err error) pjrt.Code {
	code := pjrt.Unknown
	if errors.Is(err, context.Canceled) {
		code = pjrt.Cancelled
	}
	errors.As(err, &code)
	return code
}
