package keyvalue

import (
	"context"
	"crypto/subtle"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// asking is how long a peer may take to say what it wants, and to take the answer.
const asking = 30 * time.Second

// maxConnections bounds the peers that are served at a time; others wait to be accepted.
const maxConnections = 4096

// Server serves a store at an address.
type Server struct {
	store    pjrt.KeyValueStore
	secret   string
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	serving  sync.WaitGroup
	slots    chan struct{}
}

// Listen serves a store on a "tcp" or "unix" address to those who know the secret.
func Listen(network, address string, store pjrt.KeyValueStore, secret string) (*Server, error) {
	if len(secret) > MaxKey {
		return nil, &errkind.Fault{Op: "keyvalue: listen", Reason: "the secret is too long", Class: errkind.ValueError}
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return nil, &errkind.Fault{Op: "keyvalue: listen", Err: err, Class: errkind.UnavailableError}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{store: store, secret: secret, listener: listener, ctx: ctx, cancel: cancel, slots: make(chan struct{}, maxConnections)}
	s.serving.Go(s.accept)
	return s, nil
}

// Addr is the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close ends the server, and all waits for keys.
func (s *Server) Close() error {
	err := s.listener.Close()
	s.cancel()
	s.serving.Wait()
	return err
}

func (s *Server) accept() {
	for {
		s.slots <- struct{}{}
		conn, err := s.listener.Accept()
		if err != nil {
			<-s.slots
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select { // such as too many open files
			case <-time.After(100 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		s.serving.Go(func() {
			defer func() { <-s.slots }()
			s.serve(conn)
		})
	}
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
	switch {
	case subtle.ConstantTimeCompare([]byte(q.secret), []byte(s.secret)) != 1:
		err = &errkind.Fault{Op: "keyvalue: serve", Reason: "the secret is another one", Err: pjrt.PermissionDenied}
	case q.what == opGet:
		_ = conn.SetReadDeadline(time.Time{})
		go func() { // a client that goes away waits no longer
			var none [1]byte
			_, _ = conn.Read(none[:])
			cancel()
		}()
		value, err = s.store.Get(ctx, q.key)
	case q.what == opTryGet:
		value, err = s.store.TryGet(ctx, q.key)
	case q.what == opPut:
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

// codeOf is the code of an error of a store.
func codeOf(err error) pjrt.Code {
	code := pjrt.Unknown
	if errors.Is(err, context.Canceled) {
		code = pjrt.Cancelled
	}
	errors.As(err, &code)
	return code
}
