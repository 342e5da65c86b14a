package blobstore_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/fakegcs"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/faultproxy"
)

// quick are options with which a test does not wait: five chunks for content.
var quick = blobstore.Options{ChunkBytes: 256 << 10, RetryTimeout: 20 * time.Second,
	StallTimeout: 200 * time.Millisecond}

// putOperation is 1.2 MB of noise.
func putOperation() []byte {
	data := make([]byte, 1_200_000)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func putAll(s storage.Store, name string, data []byte, opts storage.PutOptions) error {
	return s.Put(context.Background(), name, opts, func(w io.Writer) error {
		for rest := data; len(rest) > 0; {
			n := min(len(rest), 100_000)
			if _, err := w.Write(rest[:n]); err != nil {
				return err
			}
			rest = rest[n:]
		}
		return nil
	})
}

// only does a fault to one request of those that the test counts from 1.
func only(fault faultproxy.Fault, at int) faultproxy.Chooser {
	return func(_ *http.Request, n int) faultproxy.Fault {
		if n == at {
			return fault
		}
		return faultproxy.None
	}
}

func TestAPutOutlivesEachFaultAtEachRequest(t *testing.T) {
	large := putOperation()
	for _, fault := range []faultproxy.Fault{faultproxy.Unavailable, faultproxy.TooMany, faultproxy.CutRequest,
		faultproxy.LoseAnswer,
		faultproxy.CutAnswer, faultproxy.Stall, faultproxy.Slow, faultproxy.FlipRequest, faultproxy.Twice} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			server := fakegcs.Start(t, "bucket")
			s := server.Open(t, "bucket", quick)
			for _, absent := range []bool{false, true} {
				// A whole upload, and one that begins a session and sends five chunks.
				for size, requests := range map[int]int{3000: 1, len(large): 6} {
					for at := 1; at <= requests; at++ {
						name := fmt.Sprintf("%d-at-%d-%v", size, at, absent)
						server.Proxy.Choose(only(fault, at))
						require.NoError(t, putAll(s, name, large[:size], storage.PutOptions{IfAbsent: absent}), name)
						server.Proxy.Choose(nil)
						got, ok := server.Object("bucket", name)
						require.True(t, ok, name)
						require.True(t, bytes.Equal(large[:size], got), name)
					}
				}
			}
			assert.Equal(t, 14, server.Proxy.Done()[fault])
		})
	}
}

func TestAReadOutlivesEachFault(t *testing.T) {
	large := putOperation()
	for _, fault := range []faultproxy.Fault{faultproxy.Unavailable, faultproxy.TooMany, faultproxy.CutRequest,
		faultproxy.LoseAnswer,
		faultproxy.CutAnswer, faultproxy.ShortAnswer, faultproxy.Stall, faultproxy.Slow, faultproxy.Twice} {
		t.Run(fault.String(), func(t *testing.T) {
			t.Parallel()
			server := fakegcs.Start(t, "bucket")
			s := server.Open(t, "bucket", quick)
			for name, data := range map[string][]byte{"large": large, "small": large[:3000]} {
				server.Put("bucket", name, data)
				server.Proxy.Choose(only(fault, 1))
				o, err := s.Open(t.Context(), name)
				require.NoError(t, err)
				require.EqualValues(t, len(data), o.Size())
				server.Proxy.Choose(only(fault, 1))
				got := make([]byte, len(data)-17)
				require.NoError(t, o.ReadAt(t.Context(), got, 17))
				require.True(t, bytes.Equal(data[17:], got))
			}
			server.Proxy.Choose(only(fault, 1))
			infos, err := s.List(t.Context(), "")
			require.NoError(t, err)
			require.Len(t, infos, 2)
			server.Proxy.Choose(only(fault, 1))
			require.NoError(t, s.Remove(t.Context(), "small"))
			require.Equal(t, []string{"large"}, server.Names("bucket"))
		})
	}
}

func TestASmallObjectThatChangesOnItsWayIsReadAgain(t *testing.T) {
	server := fakegcs.Start(t, "bucket")
	s := server.Open(t, "bucket", quick)
	server.Put("bucket", "manifest", putOperation()[:3000])
	server.Proxy.Choose(only(faultproxy.FlipAnswer, 1))
	got, err := storage.ReadAll(t.Context(), s, "manifest", 1<<20)
	require.NoError(t, err)
	require.True(t, bytes.Equal(putOperation()[:3000], got))
	require.Equal(t, 1, server.Proxy.Done()[faultproxy.FlipAnswer])
}

func TestARivalThatWasFirstStays(t *testing.T) {
	server := fakegcs.Start(t, "bucket")
	s := server.Open(t, "bucket", quick)
	for i, size := range []int{3000, 1_200_000} {
		name := fmt.Sprint("manifest-", i)
		server.Proxy.OnRival(func(*http.Request) { server.Put("bucket", name, []byte("the rival's")) })
		server.Proxy.Choose(only(faultproxy.Rival, 1))
		err := putAll(s, name, putOperation()[:size], storage.PutOptions{IfAbsent: true})
		require.ErrorIs(t, err, storage.ErrExists)
		var e *blobstore.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, blobstore.AlreadyExists, e.Reason)
		got, _ := server.Object("bucket", name)
		assert.Equal(t, "the rival's", string(got))
	}
}

func TestAnObjectThatIsReplacedWhileItIsOpenIsAnError(t *testing.T) {
	server := fakegcs.Start(t, "bucket")
	s := server.Open(t, "bucket", quick)
	data := putOperation()
	server.Put("bucket", "x", data)
	o, err := s.Open(t.Context(), "x")
	require.NoError(t, err)
	data[500_000] ^= 1 // of the same size, in the same second
	server.Put("bucket", "x", data)
	err = o.ReadAt(t.Context(), make([]byte, 100_000), 450_000)
	var e *blobstore.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, blobstore.Replaced, e.Reason)
	require.Equal(t, 1, e.Attempts)
}

func TestWhatDoesNotPassIsNotTriedAgain(t *testing.T) {
	server := fakegcs.Start(t, "bucket")
	s := server.Open(t, "bucket", quick)
	server.Put("bucket", "there", putOperation())
	o, err := s.Open(t.Context(), "there")
	require.NoError(t, err)
	elsewhere := server.Open(t, "nobody", quick)
	calls := map[string]func(s storage.Store) error{
		"put":   func(s storage.Store) error { return putAll(s, "x", []byte("small"), storage.PutOptions{}) },
		"large": func(s storage.Store) error { return putAll(s, "x", putOperation(), storage.PutOptions{IfAbsent: true}) },
		"list":  func(s storage.Store) error { _, err := s.List(t.Context(), ""); return err },
		"check": func(s storage.Store) error { return s.(*blobstore.Store).Check(t.Context()) },
	}
	for fault, want := range map[faultproxy.Fault]struct {
		reason blobstore.Reason
		hint   string
	}{
		faultproxy.Unauthorized: {blobstore.Unauthenticated, "gcloud auth application-default login"},
		faultproxy.Forbidden:    {blobstore.PermissionDenied, "roles/storage.objectUser"},
	} {
		server.Proxy.Choose(func(*http.Request, int) faultproxy.Fault { return fault })
		calls["read"] = func(storage.Store) error { return o.ReadAt(t.Context(), make([]byte, 1000), 100_000) }
		calls["open"] = func(s storage.Store) error { _, err := s.Open(t.Context(), "there"); return err }
		calls["remove"] = func(s storage.Store) error { return s.Remove(t.Context(), "there") }
		for name, call := range calls {
			var e *blobstore.Error
			require.ErrorAs(t, call(s), &e, name)
			assert.Equal(t, want.reason, e.Reason, name)
			assert.Contains(t, e.Error(), want.hint, name)
			assert.Equal(t, 1, e.Attempts, name)
			assert.Equal(t, errkind.PermissionDeniedError, errkind.KindOf(e), name)
		}
	}
	server.Proxy.Choose(nil)
	delete(calls, "read")
	delete(calls, "open")
	delete(calls, "remove")
	for name, call := range calls {
		var e *blobstore.Error
		require.ErrorAs(t, call(elsewhere), &e, name)
		assert.Equal(t, blobstore.BucketNotFound, e.Reason, name)
		assert.Contains(t, e.Error(), "gcloud storage buckets create gs://nobody", name)
	}
}

func TestAStoreGivesUpWhenItsPatienceIsOver(t *testing.T) {
	server := fakegcs.Start(t, "bucket")
	short := quick
	short.RetryTimeout = 400 * time.Millisecond
	s := server.Open(t, "bucket", short)
	server.Proxy.Choose(func(*http.Request, int) faultproxy.Fault { return faultproxy.Unavailable })
	start := time.Now()
	_, err := s.Open(t.Context(), "x")
	var e *blobstore.Error
	require.ErrorAs(t, err, &e)
	assert.Less(t, time.Since(start), 2*time.Second)
	assert.Equal(t, blobstore.Unavailable, e.Reason)
	assert.Equal(t, errkind.UnavailableError, errkind.KindOf(err))
	assert.Greater(t, e.Attempts, 1)
	assert.Contains(t, err.Error(), "503")
	assert.NotErrorIs(t, err, storage.ErrNotExist)

	server.Put("bucket", "there", putOperation())
	server.Proxy.Choose(nil)
	o, err := s.Open(t.Context(), "there")
	require.NoError(t, err)
	server.Proxy.Choose(func(r *http.Request, _ int) faultproxy.Fault { return faultproxy.CutRequest })
	err = o.ReadAt(t.Context(), make([]byte, 100_000), 100_000)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, blobstore.Unavailable, e.Reason)
	assert.NotErrorIs(t, err, io.ErrUnexpectedEOF, "which says that the object ends")
	require.ErrorIs(t, o.ReadAt(t.Context(), make([]byte, 1), 2_000_000), io.ErrUnexpectedEOF)
	server.Proxy.Choose(func(*http.Request, int) faultproxy.Fault { return faultproxy.Unavailable })
	start = time.Now()
	require.ErrorAs(t, putAll(s, "x", putOperation(), storage.PutOptions{}), &e)
	assert.Less(t, time.Since(start), 5*time.Second, "the client gives a chunk up after half of Stall")
	assert.Equal(t, []string{"there"}, server.Names("bucket"))
}

func TestAContextEndsEveryWait(t *testing.T) {
	server := fakegcs.Start(t, "bucket")
	long := blobstore.Options{}
	s := server.Open(t, "bucket", long)
	for _, fault := range []faultproxy.Fault{faultproxy.Unavailable, faultproxy.Stall} {
		server.Proxy.Choose(func(*http.Request, int) faultproxy.Fault { return fault })
		for name, call := range map[string]func(ctx context.Context) error{
			"put": func(ctx context.Context) error {
				return storage.PutBytes(ctx, s, "x", []byte("small"), storage.PutOptions{})
			},
			"list":   func(ctx context.Context) error { _, err := s.List(ctx, ""); return err },
			"remove": func(ctx context.Context) error { return s.Remove(ctx, "x") },
		} {
			if name == "remove" && fault == faultproxy.Stall {
				continue // its answer is whole with its head
			}
			ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
			start := time.Now()
			err := call(ctx)
			cancel()
			assert.ErrorIs(t, err, context.DeadlineExceeded, "%s, %s", name, fault)
			assert.Equal(t, errkind.DeadlineExceededError, errkind.KindOf(err), name)
			assert.Less(t, time.Since(start), 3*time.Second)
		}
	}
}

func TestAnObjectUnderAnotherNameIsNotTheOneThatWasPut(t *testing.T) {
	server := fakegcs.Start(t, "bucket")
	s := server.Open(t, "bucket", quick)
	name := fmt.Sprintf("%0200d", 0) // the byte that changes is in it
	server.Proxy.Choose(only(faultproxy.FlipRequest, 1))
	require.NoError(t, putAll(s, name, putOperation(), storage.PutOptions{}))
	got, ok := server.Object("bucket", name)
	require.True(t, ok)
	require.True(t, bytes.Equal(putOperation(), got))
	require.Len(t, server.Names("bucket"), 2)
}
