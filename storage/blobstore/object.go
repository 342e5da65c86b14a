package blobstore

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"time"

	"gocloud.dev/blob"

	"github.com/tpustrategy/tpustrategy/storage"
)

// openReadBytes is the number of bytes that Open reads. They include the header of a tensor file,
// and most checkpoint manifests completely.
const openReadBytes = 64 << 10

// Open opens an object with one request, which also reads its first 64 KiB. If these bytes are the
// complete object, Open verifies the checksum if the service sends one. If the object does not
// exist, the error matches [storage.ErrNotExist].
func (s *Store) Open(ctx context.Context, name string) (storage.Object, error) {
	if err := storage.CheckName(name); err != nil {
		return nil, err
	}
	o := &object{store: s, name: name}
	err := s.retry(ctx, "open", name, func(ctx context.Context, g *stallGuard) error {
		r, err := o.newReader(ctx, g, 0, openReadBytes)
		if err != nil && s.opts.Service.status(err) == http.StatusRequestedRangeNotSatisfiable {
			return o.openEmpty(ctx, g) // an empty object has no range
		}
		if err != nil {
			return err
		}
		defer r.Close()
		o.size, o.modified = r.Size(), r.ModTime()
		o.checksum, o.hasChecksum = s.opts.Service.checksum(r)
		head := make([]byte, min(o.size, openReadBytes))
		if _, err := readFull(g, r, head); err != nil {
			return err
		}
		if got := crc32.Checksum(head, castagnoli); o.hasChecksum && o.size == int64(len(head)) && got != o.checksum {
			return fmt.Errorf("%w: CRC-32C %08x instead of %08x", ErrCorrupted, got, o.checksum)
		}
		o.head = head
		return nil
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// object is an open object. Its fields describe the object at the time when it was opened.
type object struct {
	store       *Store
	name        string
	size        int64
	modified    time.Time
	checksum    uint32 // of the complete object, if the service sends it
	hasChecksum bool
	head        []byte
}

func (o *object) Size() int64 { return o.size }

func (o *object) Close() error { return nil }

func (o *object) openEmpty(ctx context.Context, g *stallGuard) error {
	return g.do(func() error {
		attrs, err := o.store.bucket.Attributes(ctx, o.store.prefix+o.name)
		if err != nil {
			return err
		}
		if attrs.Size != 0 {
			return errReplaced
		}
		o.size, o.modified = 0, attrs.ModTime
		return nil
	})
}

func (o *object) newReader(ctx context.Context, g *stallGuard, offset, length int64) (r *blob.Reader, err error) {
	err = g.do(func() error {
		r, err = o.store.bucket.NewRangeReader(ctx, o.store.prefix+o.name, offset, length, nil)
		return err
	})
	return r, err
}

// ReadAt fills p with the bytes that begin at offset. It sends one request, or none if the bytes
// are within the first 64 KiB. A retry continues where the previous attempt stopped. If the object
// was replaced after it was opened, the error has the reason [Replaced].
func (o *object) ReadAt(ctx context.Context, p []byte, offset int64) error {
	s := o.store
	switch {
	case offset < 0:
		return valueError("read", "count bytes from 0", "offset %d of %s", offset, o.name)
	case offset+int64(len(p)) > o.size:
		return &Error{Op: "read", Store: s.opts.Name, Object: o.name, Reason: InvalidRequest, Err: io.ErrUnexpectedEOF,
			Hint: "read only bytes before the end of the object"}
	case offset+int64(len(p)) <= int64(len(o.head)):
		if ctx.Err() != nil {
			return &Error{Op: "read", Store: s.opts.Name, Object: o.name, Err: contextError(ctx)}
		}
		copy(p, o.head[offset:])
		return nil
	}
	done := 0
	return s.retry(ctx, "read", o.name, func(ctx context.Context, g *stallGuard) error {
		r, err := o.newReader(ctx, g, offset+int64(done), int64(len(p)-done))
		if err != nil {
			return err
		}
		defer r.Close()
		sum, summed := s.opts.Service.checksum(r)
		if r.Size() != o.size || !r.ModTime().Equal(o.modified) || summed && o.hasChecksum && sum != o.checksum {
			return errReplaced
		}
		n, err := readFull(g, r, p[done:])
		done += n
		return err
	})
}

func readFull(g *stallGuard, r io.Reader, p []byte) (n int, err error) {
	for n < len(p) {
		got, err := g.run(func() (int, error) { return r.Read(p[n:]) })
		n += got
		if err != nil && n < len(p) {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errTruncated // not io.ErrUnexpectedEOF, which means the end of the object
			}
			return n, err
		}
	}
	return n, nil
}
