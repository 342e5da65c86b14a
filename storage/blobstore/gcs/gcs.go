package gcs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	gcloud "cloud.google.com/go/storage"
	gax "github.com/googleapis/gax-go/v2"
	"gocloud.dev/blob/gcsblob"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
)

func init() { storage.Register("gs", open) }

func open(ctx context.Context, url string) (storage.Store, error) { return Open(ctx, url) }

// Open opens the store at a URL such as "gs://bucket/run". It lists one object to detect missing
// credentials, a missing bucket or a missing permission. The caller must close the store.
//
// The client uses Application Default Credentials, and connects to STORAGE_EMULATOR_HOST if it is
// set. The URL accepts the parameters of [blobstore.ParseURL], and "anonymous=true" for public
// buckets.
func Open(ctx context.Context, url string, opts ...option.ClientOption) (*blobstore.Store, error) {
	p, err := blobstore.ParseURL(url)
	if err != nil {
		return nil, err
	}
	if p.Query.Has("anonymous") {
		anonymous, err := strconv.ParseBool(p.Query.Get("anonymous"))
		if err != nil {
			return nil, valueError("write true or false", "parameter anonymous=%s", p.Query.Get("anonymous"))
		}
		if anonymous {
			opts = append(opts, option.WithoutAuthentication())
		}
		p.Query.Del("anonymous")
	}
	for key := range p.Query {
		return nil, valueError("remove it: the parameters are anonymous, chunk, patience and stall", "parameter %s of %s",
			key, p.Options.Name)
	}
	// The client uses the context later to refresh its credentials.
	client, err := gcloud.NewClient(context.WithoutCancel(ctx), opts...)
	if err != nil {
		return nil, &blobstore.Error{Op: "open", Store: p.Options.Name, Reason: blobstore.Unauthenticated, Err: err,
			Hint: hintsFor(p.Bucket)(blobstore.Unauthenticated)}
	}
	s, err := New(client, p.Bucket, p.Options, client.Close)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	if err := s.Check(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// New returns a store in a bucket. The client may use gRPC. New sends no request. It sets
// opts.Service, and disables the retries of the client because the store retries. Closing the store
// calls the closers; it does not close the client.
func New(client *gcloud.Client, bucket string, opts blobstore.Options, closers ...func() error) (*blobstore.Store,
	error) {
	if client == nil {
		return nil, valueError("use storage.NewClient of cloud.google.com/go/storage, or Open", "the client is nil")
	}
	client.SetRetry(gcloud.WithPolicy(gcloud.RetryNever))
	b, err := gcsblob.OpenBucket(context.Background(), nil, bucket, &gcsblob.Options{Client: client})
	if err != nil {
		return nil, &errkind.Fault{Op: "gcs: open", Subject: bucket, Err: err, Class: errkind.ValueError}
	}
	opts.Service = blobstore.Service{Status: status, Hint: hintsFor(bucket), Upload: prepareUpload,
		Checksum: responseChecksum}
	if opts.Name == "" {
		opts.Name = "gs://" + bucket
		if opts.Prefix != "" {
			opts.Name += "/" + opts.Prefix
		}
	}
	s, err := blobstore.New(b, opts, closers...)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return s, nil
}

func status(err error) int {
	var e *googleapi.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}

// prepareUpload configures an upload. For a small object, the request contains the checksum. For a
// large object, the client retries single chunks.
func prepareUpload(as func(any) bool, u blobstore.Upload) (func() (blobstore.StoredObject, bool), error) {
	var handle **gcloud.ObjectHandle
	if !u.SingleRequest && as(&handle) {
		*handle = (*handle).Retryer(gcloud.WithPolicy(gcloud.RetryAlways),
			gcloud.WithBackoff(gax.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Multiplier: 2}))
	}
	var w *gcloud.Writer
	if !as(&w) {
		return nil, errors.New("gcs: the bucket is not of Google Cloud Storage")
	}
	if u.SingleRequest {
		w.SendCRC32C, w.CRC32C = true, u.CRC32C
	}
	w.ChunkRetryDeadline = u.RetryTimeout
	return func() (blobstore.StoredObject, bool) {
		attrs := w.Attrs()
		if attrs == nil {
			return blobstore.StoredObject{}, false
		}
		return blobstore.StoredObject{Key: attrs.Name, Size: attrs.Size, CRC32C: attrs.CRC32C}, true
	}, nil
}

// responseChecksum returns the checksum of the complete object from the response to a read.
func responseChecksum(as func(any) bool) (uint32, bool) {
	var r *gcloud.Reader
	if !as(&r) || r.Attrs.Decompressed {
		return 0, false
	}
	return r.Attrs.CRC32C, r.Attrs.CRC32C != 0
}

func hintsFor(bucket string) func(blobstore.Reason) string {
	return func(r blobstore.Reason) string {
		switch r {
		case blobstore.Unauthenticated:
			return "on your own machine run `gcloud auth application-default login`; on a TPU VM or in GKE give the machine " +
				"or the pod a service account and the scope cloud-platform"
		case blobstore.PermissionDenied:
			return fmt.Sprintf("`gcloud storage buckets add-iam-policy-binding gs://%s --member=serviceAccount:ACCOUNT "+
				"--role=roles/storage.objectUser`, "+
				"and on a VM the access scope cloud-platform", bucket)
		case blobstore.BucketNotFound:
			return fmt.Sprintf(
				"correct the name, or `gcloud storage buckets create gs://%s --location=REGION`, in the region of the slice",
				bucket)
		}
		return ""
	}
}

func valueError(hint, format string, args ...any) error {
	return &errkind.Fault{Op: "gcs: open", Reason: fmt.Sprintf(format, args...), Hint: hint, Class: errkind.ValueError}
}
