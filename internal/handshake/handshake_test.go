package handshake_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/handshake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T, network, address string, rejected func(net.Addr, error)) *handshake.Listener {
	l, err := handshake.Listen(network, address, "sesame", rejected)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func dial(t *testing.T, l net.Listener) net.Conn {
	conn, err := net.Dial(l.Addr().Network(), l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestCorrectSecretIsAccepted(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0",
		"unix": filepath.Join(t.TempDir(), "socket")} {
		l := listen(t, network, address, nil)
		conn := dial(t, l)
		go func() {
			if assert.NoError(t, handshake.Authenticate(t.Context(), conn, "sesame")) {
				_, err := conn.Write([]byte("hello"))
				assert.NoError(t, err)
			}
		}()
		in, err := l.Accept()
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(in, got)
		require.NoError(t, err)
		assert.Equal(t, "hello", string(got), "what comes after the handshake is whole")
		require.NoError(t, in.Close())
	}
}

func TestWrongSecretIsRejected(t *testing.T) {
	turned := make(chan error, 2)
	l := listen(t, "tcp", "127.0.0.1:0", func(_ net.Addr, err error) { turned <- err })
	err := handshake.Authenticate(t.Context(), dial(t, l), "other")
	require.ErrorIs(t, err, handshake.ErrSecret)
	assert.Equal(t, errkind.PermissionDeniedError, errkind.KindOf(err))
	require.ErrorIs(t, <-turned, handshake.ErrSecret)
	require.ErrorIs(t, handshake.Authenticate(t.Context(), dial(t, l), "sesame\x00"), handshake.ErrSecret)
	require.ErrorIs(t, <-turned, handshake.ErrSecret)
	gone := dial(t, l)
	require.ErrorIs(t, handshake.Authenticate(t.Context(), gone, ""), handshake.ErrSecret)
	require.NoError(t, gone.Close())
	err = <-turned
	assert.True(t, errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET), "it went without an answer: %v", err)
}

func TestGreetDetectsWrongListener(t *testing.T) {
	for sent, want := range map[string]error{
		"HTTP/1.1 400 Bad Request\r\n\r\n    12345678":                     handshake.ErrProtocol,
		"TPS1" + string(make([]byte, 32)) + "y" + string(make([]byte, 32)): handshake.ErrSecret,
		"TPS1" + string(make([]byte, 32)) + "?":                            handshake.ErrProtocol,
		"TPS1" + string(make([]byte, 32)) + "n":                            handshake.ErrSecret,
		"TPS1" + string(make([]byte, 32)) + "y1":                           io.ErrUnexpectedEOF,
		"TPS1":                                                             io.ErrUnexpectedEOF,
		"":                                                                 io.EOF,
	} {
		here, there := net.Pipe()
		go func() {
			_, _ = io.WriteString(there, sent[:min(36, len(sent))])
			if len(sent) > 36 {
				_, _ = io.CopyN(io.Discard, there, 64)
				_, _ = io.WriteString(there, sent[36:])
			}
			_ = there.Close()
		}()
		assert.ErrorIs(t, handshake.Authenticate(t.Context(), here, "sesame"), want, "%q", sent)
		require.NoError(t, here.Close())
	}
}

func TestGreetTimesOut(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	defer here.Close()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, os.ErrPermission)
	defer cancel()
	began := time.Now()
	require.ErrorIs(t, handshake.Authenticate(ctx, here, "sesame"), os.ErrPermission)
	assert.Less(t, time.Since(began), 5*time.Second)
}

// TestOldestPendingConnectionIsClosed checks that idle connections do not block a client that knows
// the secret.
func TestOldestPendingConnectionIsClosed(t *testing.T) {
	var mu sync.Mutex
	dropped := 0
	l := listen(t, "tcp", "127.0.0.1:0", func(net.Addr, error) { mu.Lock(); defer mu.Unlock(); dropped++ })
	first := dial(t, l)
	for range handshake.MaxUnauthenticated + 20 {
		dial(t, l)
	}
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return dropped == 21 }, 8*time.Second,
		time.Millisecond, "before their time is over")
	_, err := io.Copy(io.Discard, first)
	require.False(t, errors.Is(err, os.ErrDeadlineExceeded), "the first was dropped")
	in := make(chan net.Conn)
	go func() {
		conn, err := l.Accept()
		assert.NoError(t, err)
		in <- conn
	}()
	require.NoError(t, handshake.Authenticate(t.Context(), dial(t, l), "sesame"))
	require.NoError(t, (<-in).Close())
}

func TestClose(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0", nil)
	dial(t, l) // an idle connection
	require.NoError(t, handshake.Authenticate(t.Context(), dial(t, l), "sesame"), "nobody accepts it")
	accepted := make(chan error)
	require.NoError(t, l.Close())
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	require.ErrorIs(t, <-accepted, net.ErrClosed)
	require.Error(t, l.Close(), "as that of net")
}

func TestListenErrors(t *testing.T) {
	for _, c := range []struct{ network, address, secret, want string }{
		{"tcp", "127.0.0.1:0", "", "the secret is empty; create one"},
		{"udp", "127.0.0.1:0", "x", `network "udp" is not supported; use "unix" or "tcp"`},
		{"", "", "x", `network ""`},
		{"tcp", "127.0.0.1:99999", "x", "invalid port"},
	} {
		_, err := handshake.Listen(c.network, c.address, c.secret, nil)
		require.ErrorContains(t, err, c.want)
		assert.NotEqual(t, errkind.Unknown, errkind.KindOf(err))
	}
	l := listen(t, "tcp", ":0", nil)
	assert.True(t, l.Addr().(*net.TCPAddr).IP.IsLoopback(), "%v", l.Addr())
}

// FuzzListenersAnswer calls Greet with arbitrary data from the listener.
func FuzzListenersAnswer(f *testing.F) {
	f.Add([]byte("TPS1" + string(make([]byte, 32)) + "y" + string(make([]byte, 32))))
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		here, there := net.Pipe()
		var done sync.WaitGroup
		done.Go(func() { _, _ = io.Copy(io.Discard, there) })
		done.Go(func() { _, _ = there.Write(sent); _ = there.Close() })
		if handshake.Authenticate(t.Context(), here, "sesame") == nil {
			t.Error("it is let in by one that does not know the secret")
		}
		_ = here.Close()
		done.Wait()
	})
}

// FuzzPeersAnswer calls authenticate with arbitrary data from the client.
func FuzzPeersAnswer(f *testing.F) {
	f.Add(make([]byte, 64))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		here, there := net.Pipe()
		var done sync.WaitGroup
		done.Go(func() { _, _ = io.Copy(io.Discard, there) })
		taken := 0
		done.Go(func() { taken, _ = there.Write(sent); _ = there.Close() })
		if handshake.Admit(here, "sesame") == nil {
			t.Error("a stranger was let in")
		}
		_ = here.Close()
		done.Wait()
		if taken > 64 {
			t.Errorf("%d bytes were read of a stranger", taken)
		}
	})
}
