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

// requestTimeout is the maximum time to receive a request, and the maximum time to send a response.
const requestTimeout = 30 * time.Second

// keepAliveInterval is the interval between the keep-alive messages of a waiting Get.
const keepAliveInterval = 5 * time.Second

// Server makes a key-value store available to other processes. See [Listen].
type Server struct {
	store      pjrt.KeyValueStore
	listener   *handshake.Listener
	ctx        context.Context
	cancel     context.CancelFunc
	goroutines sync.WaitGroup
}

// Listen serves a store on a "tcp" or "unix" address to clients that know the secret, which must
// not be empty. A TCP address without a host, such as ":8479", accepts only connections from this
// machine. To accept others, use the address of an interface, or "0.0.0.0:8479" for all interfaces.
func Listen(network, address string, store pjrt.KeyValueStore, secret string) (*Server, error) {
	listener, err := handshake.Listen(network, address, secret, nil)
	if err != nil {
		return nil, &errkind.Fault{Op: "keyvalue: listen", Err: err}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &Server{store: store, listener: listener, ctx: ctx, cancel: cancel}
	s.goroutines.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener is closed
			}
			s.goroutines.Go(func() { s.handleConn(conn) })
		}
	})
	return s, nil
}

// Addr returns the address of the server.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Close stops the server and cancels all waits for keys.
func (s *Server) Close() error {
	if s == nil || s.listener == nil {
		return nil
	}
	err := s.listener.Close()
	s.cancel()
	s.goroutines.Wait()
	return err
}

// handleConn serves the single request of a connection.
func (s *Server) handleConn(conn net.Conn) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	defer conn.Close()
	defer context.AfterFunc(s.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if conn.SetDeadline(time.Now().Add(requestTimeout)) != nil {
		return
	}
	request, err := readMessage(conn)
	if err != nil {
		return // not a valid request
	}
	var value []byte
	switch request.code {
	case opGet:
		_ = conn.SetReadDeadline(time.Time{})
		s.goroutines.Go(func() { // cancels the wait when the client disconnects
			var none [1]byte
			_, _ = conn.Read(none[:])
			cancel()
		})
		value, err = s.awaitKey(ctx, conn, request.key)
	case opTryGet:
		value, err = s.store.TryGet(ctx, request.key)
	case opPut:
		err = s.store.Put(ctx, request.key, request.value)
	default:
		err = &errkind.Fault{Op: "keyvalue: serve", Reason: "the operation is unknown", Err: pjrt.InvalidArgument}
	}
	response := message{value: value}
	if err != nil {
		response.code, response.value = uint32(errorCode(err)), []byte(err.Error())
	}
	_ = conn.SetWriteDeadline(time.Now().Add(requestTimeout))
	_ = response.write(conn) // an error means that the client has disconnected
}

// awaitKey waits until a key has a value. Meanwhile it sends keep-alive messages to the client.
func (s *Server) awaitKey(ctx context.Context, conn net.Conn, key string) (value []byte, err error) {
	done := make(chan struct{})
	s.goroutines.Go(func() {
		value, err = s.store.Get(ctx, key)
		close(done)
	})
	ticker := time.NewTicker(keepAliveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return value, err
		case <-ticker.C:
			_ = conn.SetWriteDeadline(time.Now().Add(requestTimeout))
			if (message{code: codeKeepAlive}).write(conn) != nil {
				_ = conn.Close() // cancels the wait
				<-done
				return value, err
			}
		}
	}
}

// errorCode returns the code that is sent to the client for an error of the store.
func errorCode(err error) pjrt.Code {
	code := pjrt.Unknown
	if errors.Is(err, context.Canceled) {
		code = pjrt.Cancelled
	}
	errors.As(err, &code)
	return code
}
