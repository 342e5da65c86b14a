package blobstore

import (
	"cmp"
	"errors"
	"time"

	"gocloud.dev/blob"

	"github.com/tpustrategy/tpustrategy/storage"
)

// Options configures a store. The zero value works.
type Options struct {
	// Place is how the store calls itself in errors, such as "gs://bucket/run". The zero value is
	// "bucket" with the prefix.
	Place string
	// Prefix is put before the name of each object, with a slash between them.
	Prefix string
	// ChunkBytes is how much of an object one request uploads, and what an upload holds in memory.
	// The zero value is 16 MiB. Google Cloud Storage rounds it up to a multiple of 256 KiB; S3 takes
	// no less than 5 MiB.
	ChunkBytes int
	// Patience is how long an operation is tried again after an error that may pass. The zero value
	// is 2 minutes.
	Patience time.Duration
	// Stall is how long a request, or the next bytes of one, may take before the attempt is given up
	// and tried again. A chunk has to be uploaded within it. The zero value is 1 minute.
	Stall time.Duration
	// KeepOpen leaves the bucket open when the store is closed: somebody else closes it.
	KeepOpen bool
	// Service is what is special to the service.
	Service Service
}

// The values of options that are zero.
const (
	DefaultChunkBytes = 16 << 20
	DefaultPatience   = 2 * time.Minute
	DefaultStall      = time.Minute
)

// Store is a [storage.Store] over a bucket. It is safe for concurrent use.
type Store struct {
	bucket *blob.Bucket
	opts   Options // with the usual values for those that are zero
	prefix string  // empty, or with a slash at its end
	also   []func() error
}

var _ storage.Store = (*Store)(nil)

// New returns a store over a bucket. It makes no request. The store owns the bucket, unless
// Options.KeepOpen says otherwise: its Close closes it, and then calls the functions of also, which
// may close a client.
func New(bucket *blob.Bucket, opts Options, also ...func() error) (*Store, error) {
	if bucket == nil {
		return nil, wrong("new", "open one by a driver of gocloud.dev/blob", "the bucket is nil")
	}
	if opts.ChunkBytes < 0 || opts.Patience < 0 || opts.Stall < 0 {
		return nil, wrong("new", "0 stands for the usual value", "chunks of %d bytes, patience %s, stall %s", opts.ChunkBytes, opts.Patience, opts.Stall)
	}
	opts.Place, opts.ChunkBytes = cmp.Or(opts.Place, "bucket/"+opts.Prefix), cmp.Or(opts.ChunkBytes, DefaultChunkBytes)
	opts.Patience, opts.Stall = cmp.Or(opts.Patience, DefaultPatience), cmp.Or(opts.Stall, DefaultStall)
	s := &Store{bucket: bucket, opts: opts, also: also}
	if opts.Prefix != "" {
		if err := storage.CheckName(opts.Prefix); err != nil {
			return nil, err
		}
		s.prefix = opts.Prefix + "/"
	}
	return s, nil
}

// String returns the place.
func (s *Store) String() string { return s.opts.Place }

// Close closes the bucket. Operations that are under way may fail.
func (s *Store) Close() error {
	var err error
	if !s.opts.KeepOpen {
		err = s.bucket.Close()
	}
	for _, f := range s.also {
		err = errors.Join(err, f())
	}
	return err
}
