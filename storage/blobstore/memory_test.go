package blobstore_test

import (
	"context"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
	"gocloud.dev/blob/gcsblob"

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/gcs"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/fakegcs"
)

// writing writes a number of bytes in pieces of 4 MiB, like a save.
func writing(size int64) func(io.Writer) error {
	piece := make([]byte, 4<<20)
	return func(w io.Writer) error {
		for left := size; left > 0; {
			n, err := w.Write(piece[:min(left, int64(len(piece)))])
			if left -= int64(n); err != nil {
				return err
			}
		}
		return nil
	}
}

// TestAnUploadHoldsOneChunk uploads 128 MB, with TPUSTRATEGY_SAVES 1 GiB, and looks at the heap
// meanwhile.
func TestAnUploadHoldsOneChunk(t *testing.T) {
	size := int64(128 << 20)
	if os.Getenv("TPUSTRATEGY_SAVES") != "" {
		size = 1 << 30
	}
	s, err := gcs.New(fakegcs.StartSink(t).Client(t), "bucket", blobstore.Options{})
	require.NoError(t, err)
	defer s.Close()
	write := writing(size)
	require.NoError(t, s.Put(t.Context(), "warm", storage.PutOptions{}, writing(20<<20)))
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	runtime.GC()
	base := heap()
	ctx, cancel := context.WithCancel(t.Context())
	most := make(chan int64)
	go func() {
		peak := int64(0)
		for ctx.Err() == nil {
			runtime.GC() // what is held, not what is garbage
			peak = max(peak, heap())
			time.Sleep(5 * time.Millisecond)
		}
		most <- peak
	}()
	require.NoError(t, s.Put(t.Context(), "large", storage.PutOptions{Size: size}, write))
	cancel()
	held := <-most - base
	t.Logf("%d MiB uploaded, %.1f MiB held", size>>20, float64(held)/(1<<20))
	assert.Less(t, held, int64(blobstore.DefaultChunkBytes+8<<20), "a chunk, and buffers")
}

// BenchmarkPut uploads 256 MiB with a store and with gocloud.dev alone, to a server that keeps
// nothing.
func BenchmarkPut(b *testing.B) {
	const size = 256 << 20
	client := fakegcs.StartSink(b).Client(b)
	write := writing(size)
	b.Run("store", func(b *testing.B) {
		s, err := gcs.New(client, "bucket", blobstore.Options{})
		require.NoError(b, err)
		b.SetBytes(size)
		for b.Loop() {
			require.NoError(b, s.Put(b.Context(), "x", storage.PutOptions{}, write))
		}
	})
	b.Run("plain", func(b *testing.B) {
		bucket, err := gcsblob.OpenBucket(b.Context(), nil, "bucket", &gcsblob.Options{Client: client})
		require.NoError(b, err)
		b.SetBytes(size)
		for b.Loop() {
			w, err := bucket.NewWriter(b.Context(), "x", &blob.WriterOptions{ContentType: "application/octet-stream"})
			require.NoError(b, err)
			require.NoError(b, write(w))
			require.NoError(b, w.Close())
		}
	})
}

// BenchmarkReadAt reads ranges of 16 MiB with a store and with gocloud.dev alone.
func BenchmarkReadAt(b *testing.B) {
	client := fakegcs.StartSink(b).Client(b)
	p := make([]byte, 16<<20)
	b.Run("store", func(b *testing.B) {
		s, err := gcs.New(client, "bucket", blobstore.Options{})
		require.NoError(b, err)
		o, err := s.Open(b.Context(), "x")
		require.NoError(b, err)
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			require.NoError(b, o.ReadAt(b.Context(), p, 1<<30))
		}
	})
	b.Run("plain", func(b *testing.B) {
		bucket, err := gcsblob.OpenBucket(b.Context(), nil, "bucket", &gcsblob.Options{Client: client})
		require.NoError(b, err)
		b.SetBytes(int64(len(p)))
		for b.Loop() {
			r, err := bucket.NewRangeReader(b.Context(), "x", 1<<30, int64(len(p)), nil)
			require.NoError(b, err)
			_, err = io.ReadFull(r, p)
			require.NoError(b, err)
			require.NoError(b, r.Close())
		}
	})
}
