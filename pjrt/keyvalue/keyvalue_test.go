package keyvalue_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

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
			value[0] = 'x' // the store has its own
			readers.Wait()
			require.NoError(t, store.Put(ctx, "a", nil))
			got, err := store.TryGet(ctx, "a")
			require.NoError(t, err)
			require.Empty(t, got)
			require.NoError(t, store.Put(ctx, "", []byte{1}))
			require.ErrorIs(t, store.Put(ctx, strings.Repeat("k", keyvalue.MaxKey+1), nil), pjrt.InvalidArgument)
			require.ErrorIs(t, store.Put(ctx, "k", make([]byte, keyvalue.MaxValue+1)), pjrt.InvalidArgument)
		})
	}
}

func TestAServerMayStartLateAndEndEarly(t *testing.T) {
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := reserved.Addr().String()
	require.NoError(t, reserved.Close())
	store := keyvalue.Dial("tcp", address, "")
	done := make(chan error, 2)
	for _, key := range []string{"a", "never"} {
		go func() {
			_, err := store.Get(context.Background(), key)
			done <- err
		}()
	}
	time.Sleep(50 * time.Millisecond)
	s, err := keyvalue.Listen("tcp", address, &keyvalue.Memory{}, "")
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

func TestStrangersAreCutOff(t *testing.T) {
	s := serve(t, "sesame")
	_, err := keyvalue.Dial("tcp", s.Addr().String(), "other").TryGet(context.Background(), "a")
	require.ErrorIs(t, err, pjrt.PermissionDenied)
	for _, sent := range []string{"GET / HTTP/1.1\r\n\r\n", "TPK1", "TPK1\x00\x00\x00\x00\xff\xff\xff\xff", "TPK1\x00\x00\x00\x00\x00\x00\x00\x02a",
		"TPK1\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x7f\xff\xff\xff"} {
		conn, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		_, err = fmt.Fprint(conn, sent)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
		var answer [1]byte
		_, err = conn.Read(answer[:])
		require.Error(t, err)
		require.NoError(t, conn.Close())
	}
	store := keyvalue.Dial("tcp", s.Addr().String(), "sesame")
	require.NoError(t, store.Put(context.Background(), "a", []byte("1")))
}

func Example() {
	// In process 0 of a job: the store of all of them.
	server, err := keyvalue.Listen("tcp", "127.0.0.1:0", &keyvalue.Memory{}, "secret")
	if err != nil {
		panic(err)
	}
	defer server.Close()
	// In each process: ClientOptions.KeyValues.
	store := keyvalue.Dial("tcp", server.Addr().String(), "secret")
	ctx := context.Background()
	if err := store.Put(ctx, "address of node 1", []byte("10.0.0.7")); err != nil {
		panic(err)
	}
	address, err := store.Get(ctx, "address of node 1")
	fmt.Println(string(address), err)
	// Output: 10.0.0.7 <nil>
}
