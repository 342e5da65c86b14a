package blobstore

import (
	"context"
	"crypto/rand"
	"fmt"
	"hash/crc32"
	"io"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

const (
	// wholeBytes is the maximum size of an object that is buffered and sent in one request with its
	// checksum. Retries reuse the buffer and do not call write again.
	wholeBytes = 1 << 20
	// mark is the metadata key that identifies the Put that wrote an object.
	mark = "tpustrategy-put"
	// concurrency is the number of chunks that are uploaded concurrently, on services that support
	// it.
	concurrency = 2
)

// ErrDamaged is the cause of an error with the reason [Damaged]: data was corrupted, or a response
// is malformed.
var ErrDamaged = errkind.New(errkind.DataLossError, "damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Put writes an object atomically. An object of up to 1 MiB is buffered and sent in one request. A
// larger object is uploaded in chunks, with Options.ChunkBytes of memory, and up to three times
// that on S3 and Azure, which receive chunks concurrently.
//
// After a temporary error, Put retries for Options.Patience. For an object of more than 1 MiB, a
// retry calls write again. The service's checksum is compared if it sends one. With IfAbsent, a
// random mark in the object's metadata identifies the writer, so Put also succeeds if the response
// of a successful attempt was lost.
//
// After an error no partial object is visible. If the response of the last attempt was lost, the
// complete object may exist.
func (s *Store) Put(ctx context.Context, name string, opts storage.PutOptions, write func(w io.Writer) error) error {
	if err := storage.CheckName(name); err != nil {
		return err
	}
	c := &content{store: s, key: s.prefix + name, absent: opts.IfAbsent, write: write, id: rand.Text()}
	return s.again(ctx, "put", name, c.attempt)
}

// content is the content of an object during the attempts of a Put.
type content struct {
	store  *Store
	key    string
	absent bool
	write  func(io.Writer) error
	id     string
	whole  []byte // the output of write, if it is small
	known  bool   // whole is the complete content
}

func (c *content) attempt(ctx context.Context, g *guard) error {
	u := &upload{content: c, ctx: ctx, g: g}
	err := u.run()
	if gcerrors.Code(err) == gcerrors.NotFound {
		// Either the bucket does not exist, or the upload of a large object has expired.
		if there := c.store.ask(ctx, g); c.known || there != nil {
			return known{err, NoBucket}
		}
		return fmt.Errorf("%w: %w", errGone, err)
	}
	if err == nil || !c.absent || gcerrors.Code(err) != gcerrors.FailedPrecondition && gcerrors.Code(err) != gcerrors.AlreadyExists {
		return err
	}
	var attrs *blob.Attributes
	asked := g.do(func() error {
		attrs, err = c.store.bucket.Attributes(ctx, c.key)
		return err
	})
	switch {
	case asked != nil && gcerrors.Code(asked) == gcerrors.NotFound:
		return errGone
	case asked != nil:
		return asked
	case attrs.Metadata[mark] != c.id:
		return errExists
	case c.known && attrs.Size != int64(len(c.whole)):
		return fmt.Errorf("%w: %d bytes instead of %d", ErrDamaged, attrs.Size, len(c.whole))
	}
	return nil
}

// upload is one attempt to send an object. It is the writer that is passed to write.
type upload struct {
	content *content
	ctx     context.Context
	g       *guard
	begun   []byte // buffered content, as long as it may be the complete object
	w       *blob.Writer
	stored  func() (Receipt, bool)
	size    int64
	crc     uint32
	err     error // of the writer
}

func (u *upload) run() error {
	c := u.content
	if !c.known {
		if err := c.write(u); u.err != nil {
			return u.abort(u.err)
		} else if err != nil {
			return u.abort(known{err, Other})
		}
		if u.w == nil {
			c.whole, c.known = u.begun, true
		}
	}
	if c.known {
		u.crc, u.size = crc32.Checksum(c.whole, castagnoli), int64(len(c.whole))
		if u.open(true); u.err == nil && len(c.whole) > 0 {
			u.send(c.whole)
		}
		if u.err != nil {
			return u.abort(u.err)
		}
	}
	w := u.w
	u.w = nil
	if err := u.g.do(w.Close); err != nil {
		return err
	}
	return u.compare()
}

// abort cancels the upload, so that no object is created, and returns err.
func (u *upload) abort(err error) error {
	if u.w != nil {
		u.g.cancel(err)
		_ = u.w.Close() // the error of the canceled context
	}
	return err
}

// Write buffers the content up to wholeBytes, and then sends it.
func (u *upload) Write(p []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	if u.w == nil {
		if len(u.begun)+len(p) <= wholeBytes {
			u.begun = append(u.begun, p...)
			return len(p), nil
		}
		if u.open(false); u.err == nil && len(u.begun) > 0 {
			u.sum(u.begun)
			u.send(u.begun)
		}
		u.begun = nil
		if u.err != nil {
			return 0, u.err
		}
	}
	u.sum(p)
	u.send(p)
	if u.err != nil {
		return 0, u.err
	}
	return len(p), nil
}

func (u *upload) sum(p []byte) {
	u.size += int64(len(p))
	u.crc = crc32.Update(u.crc, castagnoli, p)
}

func (u *upload) send(p []byte) {
	_, u.err = u.g.during(func() (int, error) { return u.w.Write(p) })
}

// open starts the upload.
func (u *upload) open(whole bool) {
	s := u.content.store
	opts := &blob.WriterOptions{
		BufferSize: s.opts.ChunkBytes, MaxConcurrency: concurrency, ContentType: "application/octet-stream",
		Metadata: map[string]string{mark: u.content.id}, IfNotExist: u.content.absent,
	}
	if s.opts.Service.Upload != nil {
		opts.BeforeWrite = func(as func(any) bool) (err error) {
			u.stored, err = s.opts.Service.Upload(as, Upload{Whole: whole, CRC32C: u.crc, Retry: s.opts.Stall / 2})
			return err
		}
	}
	u.err = u.g.do(func() (err error) {
		u.w, err = s.bucket.NewWriter(u.ctx, u.content.key, opts)
		return err
	})
}

// compare checks that the service stored the bytes that were sent. If not, it removes the object,
// and the next attempt writes it again.
func (u *upload) compare() error {
	if u.stored == nil {
		return nil
	}
	got, ok := u.stored()
	if !ok || got == (Receipt{u.content.key, u.size, u.crc}) {
		return nil
	}
	if got.Key != u.content.key {
		return fmt.Errorf("%w: the object is called %q", ErrDamaged, got.Key)
	}
	err := fmt.Errorf("%w: %d bytes with CRC-32C %08x instead of %d bytes with %08x", ErrDamaged, got.Size, got.CRC32C, u.size, u.crc)
	if gone := u.g.do(func() error { return u.content.store.bucket.Delete(u.ctx, u.content.key) }); gone != nil && gcerrors.Code(gone) != gcerrors.NotFound {
		return fmt.Errorf("%w, and could not be removed: %v", err, gone) //nolint:errorlint // that it is damaged decides
	}
	return err
}
