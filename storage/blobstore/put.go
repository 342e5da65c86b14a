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
	// maxBufferedBytes is the maximum size of an object that is buffered and sent in one request
	// with its checksum. Retries reuse the buffer and do not call write again.
	maxBufferedBytes = 1 << 20
	// putIDKey is the metadata key that identifies the Put that wrote an object.
	putIDKey = "tpustrategy-put"
	// concurrentChunks is the number of chunks that are uploaded concurrently, on services that
	// support it.
	concurrentChunks = 2
)

// ErrCorrupted is the cause of an error with the reason [Corrupted]: data was corrupted in
// transfer, or a response is malformed.
var ErrCorrupted = errkind.New(errkind.DataLossError, "damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Put writes an object atomically. An object of up to 1 MiB is buffered and sent in one request. A
// larger object is uploaded in chunks of Options.ChunkBytes. One chunk is buffered, or up to three
// chunks on S3 and Azure, which receive chunks concurrently. The checksum is verified if the
// service sends one.
//
// After a temporary error, Put retries for Options.RetryTimeout. If the object is larger than 1
// MiB, a retry calls write again. With IfAbsent, a random ID in the object's metadata identifies
// the Put, so a Put also succeeds if the response to its successful attempt was lost.
//
// After an error no partial object is visible. If the response to the last attempt was lost, the
// complete object may exist.
func (s *Store) Put(ctx context.Context, name string, opts storage.PutOptions, write func(w io.Writer) error) error {
	if err := storage.CheckName(name); err != nil {
		return err
	}
	c := &putOperation{store: s, key: s.prefix + name, ifAbsent: opts.IfAbsent, write: write, putID: rand.Text()}
	return s.retry(ctx, "put", name, c.attempt)
}

// putOperation is the state that all attempts of one Put share.
type putOperation struct {
	store      *Store
	key        string
	ifAbsent   bool
	write      func(io.Writer) error
	putID      string
	buffer     []byte // the output of write, if it is small
	isBuffered bool   // buffer is the complete content
}

func (c *putOperation) attempt(ctx context.Context, g *stallGuard) error {
	u := &uploadWriter{put: c, ctx: ctx, guard: g}
	err := u.upload()
	if gcerrors.Code(err) == gcerrors.NotFound {
		// Either the bucket does not exist, or the upload of a large object has expired.
		if bucketErr := c.store.checkBucket(ctx, g); c.isBuffered || bucketErr != nil {
			return reasonError{err, BucketNotFound}
		}
		return fmt.Errorf("%w: %w", errVanished, err)
	}
	if err == nil || !c.ifAbsent || gcerrors.Code(err) != gcerrors.FailedPrecondition &&
		gcerrors.Code(err) != gcerrors.AlreadyExists {
		return err
	}
	var attrs *blob.Attributes
	attrsErr := g.do(func() error {
		attrs, err = c.store.bucket.Attributes(ctx, c.key)
		return err
	})
	switch {
	case attrsErr != nil && gcerrors.Code(attrsErr) == gcerrors.NotFound:
		return errVanished
	case attrsErr != nil:
		return attrsErr
	case attrs.Metadata[putIDKey] != c.putID:
		return errExists
	case c.isBuffered && attrs.Size != int64(len(c.buffer)):
		return fmt.Errorf("%w: %d bytes instead of %d", ErrCorrupted, attrs.Size, len(c.buffer))
	}
	return nil
}

// uploadWriter is one attempt to upload an object. The caller's write function writes to it.
type uploadWriter struct {
	put    *putOperation
	ctx    context.Context
	guard  *stallGuard
	buffer []byte // buffered content, as long as it may be the complete object
	blob   *blob.Writer
	stored func() (StoredObject, bool)
	size   int64
	crc    uint32
	err    error // of the writer
}

func (u *uploadWriter) upload() error {
	c := u.put
	if !c.isBuffered {
		if err := c.write(u); u.err != nil {
			return u.abort(u.err)
		} else if err != nil {
			return u.abort(reasonError{err, Unknown})
		}
		if u.blob == nil {
			c.buffer, c.isBuffered = u.buffer, true
		}
	}
	if c.isBuffered {
		u.crc, u.size = crc32.Checksum(c.buffer, castagnoli), int64(len(c.buffer))
		if u.start(true); u.err == nil && len(c.buffer) > 0 {
			u.send(c.buffer)
		}
		if u.err != nil {
			return u.abort(u.err)
		}
	}
	w := u.blob
	u.blob = nil
	if err := u.guard.do(w.Close); err != nil {
		return err
	}
	return u.verify()
}

// abort cancels the upload, so that no object is created.
func (u *uploadWriter) abort(err error) error {
	if u.blob != nil {
		u.guard.cancel(err)
		_ = u.blob.Close() // the error of the canceled context
	}
	return err
}

// Write buffers up to maxBufferedBytes of content. After that it uploads all content.
func (u *uploadWriter) Write(p []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	if u.blob == nil {
		if len(u.buffer)+len(p) <= maxBufferedBytes {
			u.buffer = append(u.buffer, p...)
			return len(p), nil
		}
		if u.start(false); u.err == nil && len(u.buffer) > 0 {
			u.addChecksum(u.buffer)
			u.send(u.buffer)
		}
		u.buffer = nil
		if u.err != nil {
			return 0, u.err
		}
	}
	u.addChecksum(p)
	u.send(p)
	if u.err != nil {
		return 0, u.err
	}
	return len(p), nil
}

func (u *uploadWriter) addChecksum(p []byte) {
	u.size += int64(len(p))
	u.crc = crc32.Update(u.crc, castagnoli, p)
}

func (u *uploadWriter) send(p []byte) {
	_, u.err = u.guard.run(func() (int, error) { return u.blob.Write(p) })
}

func (u *uploadWriter) start(singleRequest bool) {
	s := u.put.store
	opts := &blob.WriterOptions{
		BufferSize: s.opts.ChunkBytes, MaxConcurrency: concurrentChunks, ContentType: "application/octet-stream",
		Metadata: map[string]string{putIDKey: u.put.putID}, IfNotExist: u.put.ifAbsent,
	}
	if s.opts.Service.Upload != nil {
		opts.BeforeWrite = func(as func(any) bool) (err error) {
			u.stored, err = s.opts.Service.Upload(as, Upload{SingleRequest: singleRequest, CRC32C: u.crc,
				RetryTimeout: s.opts.StallTimeout / 2})
			return err
		}
	}
	u.err = u.guard.do(func() (err error) {
		u.blob, err = s.bucket.NewWriter(u.ctx, u.put.key, opts)
		return err
	})
}

// verify checks the checksum of the stored object. If it differs, verify removes the object and
// returns an error that causes a retry.
func (u *uploadWriter) verify() error {
	if u.stored == nil {
		return nil
	}
	got, ok := u.stored()
	if !ok || got == (StoredObject{u.put.key, u.size, u.crc}) {
		return nil
	}
	if got.Key != u.put.key {
		return fmt.Errorf("%w: the stored object has the name %q", ErrCorrupted, got.Key)
	}
	err := fmt.Errorf("%w: %d bytes with CRC-32C %08x instead of %d bytes with %08x", ErrCorrupted, got.Size, got.CRC32C,
		u.size, u.crc)
	if deleteErr := u.guard.do(func() error { return u.put.store.bucket.Delete(u.ctx, u.put.key) }); deleteErr != nil &&
		gcerrors.Code(deleteErr) != gcerrors.NotFound {
		return fmt.Errorf("%w, and could not be removed: %v", err,
			deleteErr) //nolint:errorlint // the corruption determines the reason
	}
	return err
}
