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
	// Patience is how long each side waits for the other's part of a handshake.
	Patience = 10 * time.Second
	// MaxStrangers bounds the connections that have not proved that they know the secret.
	MaxStrangers = 256
)

// Listener is a [net.Listener] of peers that know a secret. It is safe for concurrent use.
type Listener struct {
	listener net.Listener
	secret   string
	refused  func(peer net.Addr, err error)
	ready    chan net.Conn
	done     chan struct{}
	running  sync.WaitGroup

	mu        sync.Mutex
	strangers []net.Conn // the oldest first
	closed    bool
}

var _ net.Listener = (*Listener)(nil)

// Listen listens on a "tcp" or "unix" address for peers that know a secret, which must not be empty.
// A TCP address without a host, such as ":8479", is of the loopback interface: who wants to be
// reached by others names the interface, or all of them by "0.0.0.0" or "[::]". refused, if it is
// not nil, is told of each peer that was not let in, by several goroutines at once.
func Listen(network, address, secret string, refused func(peer net.Addr, err error)) (*Listener, error) {
	wrong := func(hint, format string, args ...any) error {
		return &errkind.Fault{Op: "handshake: listen", Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}
	}
	if secret == "" {
		return nil, wrong("make one, as by rand.Text of crypto/rand, and tell it the peers", "the secret is empty")
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
		return nil, wrong(`give "unix" or "tcp"`, "network %q", network)
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		return nil, &errkind.Fault{Op: "handshake: listen", Err: err, Class: errkind.UnavailableError}
	}
	if refused == nil {
		refused = func(net.Addr, error) {}
	}
	l := &Listener{listener: listener, secret: secret, refused: refused, ready: make(chan net.Conn), done: make(chan struct{})}
	l.running.Go(l.run)
	return l, nil
}

// Accept waits for a peer that knows the secret. After Close its error matches [net.ErrClosed].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.ready:
		return conn, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: l.Addr().Network(), Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Addr returns the address that it listens on.
func (l *Listener) Addr() net.Addr { return l.listener.Addr() }

// Close drops those who have not been accepted, and returns when nothing runs any more. Connections
// that were accepted stay open.
func (l *Listener) Close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.done)
	}
	for _, conn := range l.strangers {
		_ = conn.Close() // its end is what is wanted
	}
	l.mu.Unlock()
	err := l.listener.Close()
	l.running.Wait()
	return err
}

// run starts a handshake for each connection.
func (l *Listener) run() {
	for {
		conn, err := l.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as too many open files
			select {
			case <-time.After(100 * time.Millisecond):
			case <-l.done:
			}
			continue
		}
		l.add(conn)
		l.running.Go(func() {
			err := admit(conn, l.secret)
			l.remove(conn)
			if err != nil {
				_ = conn.Close() // the error says more
				l.refused(conn.RemoteAddr(), err)
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

// add notes a stranger, and drops the oldest where there are too many.
func (l *Listener) add(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close() // admit notices
	}
	if len(l.strangers) >= MaxStrangers {
		_ = l.strangers[0].Close()
		l.strangers = slices.Delete(l.strangers, 0, 1)
	}
	l.strangers = append(l.strangers, conn)
}

// remove forgets a stranger.
func (l *Listener) remove(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.strangers, conn); i >= 0 {
		l.strangers = slices.Delete(l.strangers, i, i+1)
	}
}
