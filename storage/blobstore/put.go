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
	// wholeBytes is up to which size an object is collected in memory and sent in one request, with
	// its checksum, and never asked for again.
	wholeBytes = 1 << 20
	// mark is the entry of an object's metadata that says which Put wrote it.
	mark = "tpustrategy-put"
	// concurrency is how many chunks of an object a service that takes parts gets at a time.
	concurrency = 2
)

// ErrDamaged is the cause of an error for the reason [Damaged]: bytes changed on their way, or an
// answer is none that the service gives.
var ErrDamaged = errkind.New(errkind.DataLossError, "damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Put writes an object, whole or not at all. An object of up to 1 MiB is collected in memory and
// sent in one request; a larger one is uploaded chunk by chunk, and holds Options.ChunkBytes in
// memory, on services that take parts in any order (S3, Azure) up to three times that.
//
// After an error that may pass, Put tries again for Options.Patience; it then calls write again,
// unless the client could repeat a chunk. The service's checksum is compared where it gives one.
// With IfAbsent a Put that succeeded although its answer was lost is recognized by a random mark in
// the object's metadata: it succeeds.
//
// After an error nobody sees a part of the object. Where the last answer was lost the whole object
// may be there nevertheless.
func (s *Store) Put(ctx context.Context, name string, opts storage.PutOptions, write func(w io.Writer) error) error {
	if err := storage.CheckName(name); err != nil {
		return err
	}
	c := &content{store: s, key: s.prefix + name, absent: opts.IfAbsent, write: write, id: rand.Text()}
	return s.again(ctx, "put", name, c.attempt)
}

// content is what Put writes to an object, in however many attempts.
type content struct {
	store  *Store
	key    string
	absent bool
	write  func(io.Writer) error
	id     string
	whole  []byte // what write wrote, if it is small
	known  bool   // whole is all of it
}

func (c *content) attempt(ctx context.Context, g *guard) error {
	u := &upload{content: c, ctx: ctx, g: g}
	err := u.run()
	if gcerrors.Code(err) == gcerrors.NotFound {
		// Either the bucket is not there, or the service has forgotten the upload of a large object.
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

// upload is one attempt to send an object. It is the writer that the content is written to.
type upload struct {
	content *content
	ctx     context.Context
	g       *guard
	begun   []byte // what is not sent yet, while that may be all
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

// abort ends the upload, so that there is no object, and returns the error.
func (u *upload) abort(err error) error {
	if u.w != nil {
		u.g.cancel(err)
		_ = u.w.Close() // the error of the canceled context
	}
	return err
}

// Write collects the content, or sends it.
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

// open begins the request, or the first of several.
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

// compare looks whether the service has what was sent. What it has otherwise is removed: it is of
// this attempt, and the next one writes it anew.
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
