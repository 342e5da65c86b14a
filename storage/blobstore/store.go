package blobstore

import (
	"cmp"
	"errors"
	"time"

	"gocloud.dev/blob"

	"github.com/tpustrategy/tpustrategy/storage"
)

// Options configures a [Store].
type Options struct {
	// Name is the name of the store in errors, such as "gs://bucket/run". The default is "bucket/"
	// and the prefix.
	Name string
	// Prefix is prepended to the name of each object, with a slash in between.
	Prefix string
	// ChunkBytes is the size of the chunks of a large upload, which are buffered in memory. The
	// default is 16 MiB. Google Cloud Storage rounds it up to a multiple of 256 KiB; S3 requires at
	// least 5 MiB.
	ChunkBytes int
	// RetryTimeout is the time for which an operation is retried after temporary errors. The
	// default is 2 minutes.
	RetryTimeout time.Duration
	// StallTimeout is the timeout of a single read, write or request without a body, after which the
	// attempt is canceled and retried. The upload of one chunk must not exceed it. The default is 1
	// minute.
	StallTimeout time.Duration
	// KeepOpen leaves the bucket open when the store is closed.
	KeepOpen bool
	// Service contains functions for features of the service.
	Service Service
}

// Defaults of [Options].
const (
	DefaultChunkBytes   = 16 << 20
	DefaultRetryTimeout = 2 * time.Minute
	DefaultStallTimeout = time.Minute
)

// Store is a [storage.Store] over a bucket. It is safe for concurrent use.
type Store struct {
	bucket  *blob.Bucket
	opts    Options // with defaults set
	prefix  string  // empty, or ends with a slash
	closers []func() error
}

var _ storage.Store = (*Store)(nil)

// New returns a store over a bucket. It sends no request. Closing the store closes the bucket,
// unless Options.KeepOpen is set, and then calls the closers, for example to close a client.
func New(bucket *blob.Bucket, opts Options, closers ...func() error) (*Store, error) {
	if bucket == nil {
		return nil, valueError("new", "open a bucket with a driver of gocloud.dev/blob", "the bucket is nil")
	}
	if opts.ChunkBytes < 0 || opts.RetryTimeout < 0 || opts.StallTimeout < 0 {
		return nil, valueError("new", "use 0 for the default", "chunks of %d bytes, retry timeout %s, stall timeout %s",
			opts.ChunkBytes, opts.RetryTimeout, opts.StallTimeout)
	}
	opts.Name, opts.ChunkBytes = cmp.Or(opts.Name, "bucket/"+opts.Prefix), cmp.Or(opts.ChunkBytes, DefaultChunkBytes)
	opts.RetryTimeout, opts.StallTimeout = cmp.Or(opts.RetryTimeout, DefaultRetryTimeout), cmp.Or(opts.StallTimeout,
		DefaultStallTimeout)
	s := &Store{bucket: bucket, opts: opts, closers: closers}
	if opts.Prefix != "" {
		if err := storage.CheckName(opts.Prefix); err != nil {
			return nil, err
		}
		s.prefix = opts.Prefix + "/"
	}
	return s, nil
}

// String returns Options.Name.
func (s *Store) String() string { return s.opts.Name }

// Close closes the bucket, unless Options.KeepOpen is set. Running operations may fail.
func (s *Store) Close() error {
	var err error
	if !s.opts.KeepOpen {
		err = s.bucket.Close()
	}
	for _, f := range s.closers {
		err = errors.Join(err, f())
	}
	return err
}
