package keyvalue_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/handshake"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/keyvalue"
)

// limitedStore is a store that checks the limits of keys and values.
type limitedStore struct {
	*testing.T
	keyvalue.Memory
}

func (b *limitedStore) Put(ctx context.Context, key string, value []byte) error {
	if len(key) > keyvalue.MaxKeyBytes || len(value) > keyvalue.MaxValueBytes {
		b.Errorf("a key of %d bytes and a value of %d bytes", len(key), len(value))
	}
	return b.Memory.Put(ctx, key, value)
}

// encodeMessage encodes a message.
func encodeMessage(what uint32, parts ...string) []byte {
	b := binary.BigEndian.AppendUint32([]byte("TPK2"), what)
	for _, part := range parts {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	return b
}

// FuzzServer sends arbitrary data to a server over an authenticated connection.
func FuzzServer(f *testing.F) {
	for what := range uint32(4) {
		f.Add(encodeMessage(what, "a", "1"))
		f.Add(encodeMessage(what, "absent", ""))
	}
	f.Add(append(encodeMessage(2, "a"), 0xff, 0xff, 0xff, 0xff))
	f.Add([]byte("TPK1"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		store := &limitedStore{T: t}
		_ = store.Memory.Put(context.Background(), "a", []byte("one"))
		here, there := net.Pipe()
		var done sync.WaitGroup
		done.Go(func() { keyvalue.Serve(store, here) })
		var heard []byte
		done.Go(func() { heard, _ = io.ReadAll(there) })
		_, _ = there.Write(sent)
		gone := time.AfterFunc(2*time.Millisecond, func() { _ = there.Close() }) // cancels a wait for a key
		done.Wait()
		gone.Stop()
		_ = there.Close()
		if len(heard) > 0 && (len(heard) < 16 || string(heard[:4]) != "TPK2") {
			t.Errorf("the response %q is invalid", heard)
		}
	})
}

// FuzzClient sends arbitrary data to a client over an authenticated connection.
func FuzzClient(f *testing.F) {
	listener, err := handshake.Listen("unix", filepath.Join(f.TempDir(), "socket"), "sesame", nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = listener.Close() })
	for what := range uint32(20) {
		f.Add(encodeMessage(what, "", "one"))
	}
	f.Add(append(encodeMessage(1<<31, "", ""), encodeMessage(0, "", "one")...))
	f.Add(encodeMessage(0, "key", ""))
	f.Fuzz(func(t *testing.T, sent []byte) {
		store := keyvalue.Dial("unix", listener.Addr().String(), "sesame")
		for _, call := range []func(context.Context) ([]byte, error){
			func(ctx context.Context) ([]byte, error) { return store.Get(ctx, "a") },
			func(ctx context.Context) ([]byte, error) { return store.TryGet(ctx, "a") },
			func(ctx context.Context) ([]byte, error) { return nil, store.Put(ctx, "a", []byte("one")) },
		} {
			served := make(chan struct{})
			go func() {
				defer close(served)
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 64)) // the request
				_, _ = conn.Write(sent)
				_ = conn.Close()
			}()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			value, err := call(ctx)
			cancel()
			<-served
			var code pjrt.Code
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				t.Errorf("the client still waits: %v", err)
			case err != nil && (err.Error() == "" || errkind.KindOf(err) == errkind.Unknown && !errors.As(err, &code)):
				t.Errorf("an error without a kind: %v", err)
			case len(value) > keyvalue.MaxValueBytes || err != nil && value != nil:
				t.Errorf("%d bytes and %v", len(value), err)
			}
		}
	})
}
