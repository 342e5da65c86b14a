package keyvalue_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/handshake"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/keyvalue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func serve(t *testing.T, secret string) *keyvalue.Server {
	t.Helper()
	s, err := keyvalue.Listen("tcp", "127.0.0.1:0", &keyvalue.Memory{}, secret)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestStores(t *testing.T) {
	for name, store := range map[string]pjrt.KeyValueStore{
		"memory": &keyvalue.Memory{},
		"remote": keyvalue.Dial("tcp", serve(t, "sesame").Addr().String(), "sesame"),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			_, err := store.TryGet(ctx, "a")
			require.ErrorIs(t, err, pjrt.NotFound)
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, err = store.Get(short, "a")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			var readers sync.WaitGroup
			for range 8 {
				readers.Go(func() {
					got, err := store.Get(ctx, "a")
					assert.NoError(t, err)
					assert.Equal(t, "one\x00two", string(got))
				})
			}
			time.Sleep(10 * time.Millisecond)
			value := []byte("one\x00two")
			require.NoError(t, store.Put(ctx, "a", value))
			value[0] = 'x' // the store must have a copy
			readers.Wait()
			require.NoError(t, store.Put(ctx, "a", nil))
			got, err := store.TryGet(ctx, "a")
			require.NoError(t, err)
			require.Empty(t, got)
			require.NoError(t, store.Put(ctx, "", []byte{1}))
			require.ErrorIs(t, store.Put(ctx, strings.Repeat("k", keyvalue.MaxKeyBytes+1), nil), pjrt.InvalidArgument)
			require.ErrorIs(t, store.Put(ctx, "k", make([]byte, keyvalue.MaxValueBytes+1)), pjrt.InvalidArgument)
		})
	}
}

func TestServerStartsLateAndClosesEarly(t *testing.T) {
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := reserved.Addr().String()
	require.NoError(t, reserved.Close())
	store := keyvalue.Dial("tcp", address, "sesame")
	done := make(chan error, 2)
	for _, key := range []string{"a", "never"} {
		go func() {
			_, err := store.Get(context.Background(), key)
			done <- err
		}()
	}
	time.Sleep(50 * time.Millisecond)
	s, err := keyvalue.Listen("tcp", address, &keyvalue.Memory{}, "sesame")
	require.NoError(t, err)
	require.NoError(t, store.Put(context.Background(), "a", nil))
	require.NoError(t, <-done)
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, s.Close())
	require.Error(t, <-done)
	gone, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = store.TryGet(gone, "a")
	require.ErrorIs(t, err, pjrt.Unavailable)
}

func TestWrongSecretIsRejected(t *testing.T) {
	s := serve(t, "sesame")
	for _, secret := range []string{"other", "", "sesame\x00", "SESAME"} {
		_, err := keyvalue.Dial("tcp", s.Addr().String(), secret).TryGet(t.Context(), "a")
		require.ErrorIs(t, err, pjrt.PermissionDenied, "%q", secret)
	}
	_, err := keyvalue.Listen("tcp", "127.0.0.1:0", &keyvalue.Memory{}, "")
	require.ErrorContains(t, err, "the secret is empty")
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	// An address without a host accepts only local connections.
	here, err := keyvalue.Listen("tcp", ":0", &keyvalue.Memory{}, "sesame")
	require.NoError(t, err)
	defer here.Close()
	assert.True(t, here.Addr().(*net.TCPAddr).IP.IsLoopback(), "%v", here.Addr())
}

func TestInvalidRequestsAreRejected(t *testing.T) {
	s := serve(t, "sesame")
	for _, sent := range []string{"GET / HTTP/1.1\r\n\r\n", "TPK2", "TPK2\x00\x00\x00\x00\xff\xff\xff\xff",
		"TPK2\x00\x00\x00\x00\x00\x00\x00\x02a",
		"TPK2\x00\x00\x00\x02\x00\x00\x00\x00\x7f\xff\xff\xff"} {
		conn, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		require.NoError(t, handshake.Authenticate(t.Context(), conn, "sesame"))
		_, err = fmt.Fprint(conn, sent)
		require.NoError(t, err)
		_ = conn.(*net.TCPConn).CloseWrite() // fails if the server has already closed the connection
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		var answer [1]byte
		_, err = conn.Read(answer[:])
		require.Error(t, err)
		require.NoError(t, conn.Close())
	}
	require.NoError(t, keyvalue.Dial("tcp", s.Addr().String(), "sesame").Put(t.Context(), "a", []byte("1")))
}

// TestUnauthenticatedDataIsNotRead sends 100 MB over each of 60 connections. The server must read
// only the first bytes.
func TestUnauthenticatedDataIsNotRead(t *testing.T) {
	s := serve(t, "sesame")
	var before, after runtime.MemStats
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	runtime.ReadMemStats(&before)
	var conns sync.WaitGroup
	for range 60 {
		conns.Go(func() {
			conn, err := net.Dial("tcp", s.Addr().String())
			if !assert.NoError(t, err) {
				return
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			_, err = fmt.Fprint(conn, "TPK1\x00\x00\x00\x02\x00\x00\x00\x05other\x00\x00\x00\x01a\x04\x00\x00\x00")
			for sent := 0; err == nil && sent < 100<<20; sent += len(chunk) {
				_, err = conn.Write(chunk)
			}
		})
	}
	conns.Wait()
	require.NoError(t, keyvalue.Dial("tcp", s.Addr().String(), "sesame").Put(t.Context(), "a", []byte("1")))
	runtime.ReadMemStats(&after)
	assert.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(8), "MiB")
}

// TestIdleConnectionsDoNotBlockClients opens 5,000 connections that send nothing.
func TestIdleConnectionsDoNotBlockClients(t *testing.T) {
	s := serve(t, "sesame")
	store := keyvalue.Dial("tcp", s.Addr().String(), "sesame")
	var conns []net.Conn
	defer func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}()
	for range 5000 {
		conn, err := net.DialTimeout("tcp", s.Addr().String(), 10*time.Second)
		require.NoError(t, err)
		conns = append(conns, conn)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, store.Put(ctx, "a", []byte("1")))
	got, err := store.Get(ctx, "a")
	require.NoError(t, err)
	assert.Equal(t, "1", string(got))
	t.Logf("let in after %v", time.Since(began))
}

// silentServer returns the address of a server that sends nothing, except a handshake if secret is
// not empty.
func silentServer(t *testing.T, secret string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if secret != "" {
		require.NoError(t, listener.Close())
		listener, err = handshake.Listen("tcp", "127.0.0.1:0", secret, nil)
	}
	require.NoError(t, err)
	var conns []net.Conn
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns = append(conns, conn)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
		for _, conn := range conns {
			_ = conn.Close()
		}
	})
	return listener.Addr().String()
}

func TestCallsToSilentServerTimeOut(t *testing.T) {
	for name, secret := range map[string]string{"before the handshake": "", "after it": "sesame"} {
		address := silentServer(t, secret)
		value := make([]byte, keyvalue.MaxValueBytes) // larger than the buffer of a socket
		for op, call := range map[string]func(context.Context, *keyvalue.Client) error{
			"put": func(ctx context.Context, r *keyvalue.Client) error { return r.Put(ctx, "a", value) },
			"try to get": func(ctx context.Context, r *keyvalue.Client) error {
				_,
					err := r.TryGet(ctx, "a")
				return err
			},
			"get": func(ctx context.Context, r *keyvalue.Client) error { _, err := r.Get(ctx, "a"); return err },
		} {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			err := call(ctx, keyvalue.Dial("tcp", address, "sesame"))
			require.ErrorIs(t, err, context.DeadlineExceeded, "%s %s", op, name)
			assert.ErrorContains(t, err, "keyvalue: "+op+` "a" at `+address)
			// Without a deadline of the caller, the default timeout applies.
			if secret != "" {
				err = call(t.Context(), keyvalue.DialTimeout("tcp", address, "sesame", 100*time.Millisecond))
				require.ErrorIs(t, err, pjrt.Unavailable, "%s %s", op, name)
			}
			assert.Less(t, time.Since(began), 5*time.Second, "%s %s", op, name)
			cancel()
		}
	}
}

func Example() {
	// Process 0 of the job serves the store.
	server, err := keyvalue.Listen("tcp", "127.0.0.1:0", &keyvalue.Memory{}, "secret")
	if err != nil {
		panic(err)
	}
	defer server.Close()
	// All processes use it as ClientOptions.KeyValues.
	store := keyvalue.Dial("tcp", server.Addr().String(), "secret")
	ctx := context.Background()
	if err := store.Put(ctx, "address of node 1", []byte("10.0.0.7")); err != nil {
		panic(err)
	}
	address, err := store.Get(ctx, "address of node 1")
	fmt.Println(string(address), err)
	// Output: 10.0.0.7 <nil>
}
