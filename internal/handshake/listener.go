package handshake

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
)

const (
	// Timeout is the maximum duration of a handshake on each side.
	Timeout = 10 * time.Second
	// MaxUnauthenticated is the maximum number of unauthenticated connections.
	MaxUnauthenticated = 256
)

// Listener is a [net.Listener] that accepts only authenticated connections. It is safe for
// concurrent use.
type Listener struct {
	listener   net.Listener
	secret     string
	onReject   func(peer net.Addr, err error)
	ready      chan net.Conn
	done       chan struct{}
	goroutines sync.WaitGroup

	mu      sync.Mutex
	pending []net.Conn // unauthenticated connections, oldest first
	closed  bool
}

var _ net.Listener = (*Listener)(nil)

// Listen listens on a "tcp" or "unix" address. The secret must not be empty. A TCP address without
// a host, such as ":8479", listens only on the loopback interface. To accept connections from other
// machines, use the address of an interface, or "0.0.0.0" or "[::]" for all interfaces. rejected,
// if not nil, is called for each client that fails to authenticate, possibly concurrently.
func Listen(network, address, secret string, rejected func(peer net.Addr, err error)) (*Listener, error) {
	wrong := func(hint, format string, args ...any) error {
		return &errkind.Fault{Op: "handshake: listen", Reason: fmt.Sprintf(format, args...), Hint: hint,
			Class: errkind.ValueError}
	}
	if secret == "" {
		return nil, wrong("create one, for example with rand.Text of crypto/rand, and share it with the clients",
			"the secret is empty")
	}
	switch network {
	case "tcp", "tcp4", "tcp6":
		if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
			loopback := "127.0.0.1"
			if network == "tcp6" {
				loopback = "::1"
			}
			address = net.JoinHostPort(loopback, port)
		}
	case "unix":
	default:
		return nil, wrong(`use "unix" or "tcp"`, "network %q is not supported", network)
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return nil, &errkind.Fault{Op: "handshake: listen", Err: err, Class: errkind.UnavailableError}
	}
	if rejected == nil {
		rejected = func(net.Addr, error) {}
	}
	l := &Listener{listener: listener, secret: secret, onReject: rejected, ready: make(chan net.Conn),
		done: make(chan struct{})}
	l.goroutines.Go(l.acceptLoop)
	return l, nil
}

// Accept waits for an authenticated connection. After Close, the error matches [net.ErrClosed].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.ready:
		return conn, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Addr returns the address of the listener.
func (l *Listener) Addr() net.Addr { return l.listener.Addr() }

// Close stops listening, closes all connections that Accept has not returned, and waits until all
// goroutines have exited.
func (l *Listener) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.done)
	}
	for _, conn := range l.pending {
		_ = conn.Close()
	}
	l.mu.Unlock()
	err := l.listener.Close()
	l.goroutines.Wait()
	return err
}

// acceptLoop accepts connections and starts a handshake for each one in a new goroutine.
func (l *Listener) acceptLoop() {
	for {
		conn, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example, too many open files
			select {
			case <-time.After(100 * time.Millisecond):
			case <-l.done:
			}
			continue
		}
		l.addPending(conn)
		l.goroutines.Go(func() {
			err := authenticatePeer(conn, l.secret)
			l.removePending(conn)
			if err != nil {
				_ = conn.Close()
				l.onReject(conn.RemoteAddr(), err)
				return
			}
			select {
			case l.ready <- conn:
			case <-l.done:
				_ = conn.Close()
			}
		})
	}
}

// addPending adds an unauthenticated connection. If there are too many, it closes the oldest one.
func (l *Listener) addPending(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close() // its handshake fails then
	}
	if len(l.pending) >= MaxUnauthenticated {
		_ = l.pending[0].Close()
		l.pending = slices.Delete(l.pending, 0, 1)
	}
	l.pending = append(l.pending, conn)
}

func (l *Listener) removePending(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.pending, conn); i >= 0 {
		l.pending = slices.Delete(l.pending, i, i+1)
	}
}
