package s3

import (
	"context"
	"errors"
	"net/http"

	_ "gocloud.dev/blob/s3blob" // the driver

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
)

func init() { storage.Register("s3", open) }

func open(ctx context.Context, url string) (storage.Store, error) { return Open(ctx, url) }

// Open opens the store at a URL. It lists one object to check that the bucket is accessible. The
// caller must close the store.
func Open(ctx context.Context, url string) (*blobstore.Store, error) {
	return blobstore.OpenURL(ctx, "s3", url, blobstore.Service{Status: status, Hint: hint, List: addListingCheck}, "")
}

// status returns the HTTP status of an error. A conflict of concurrent writers is temporary, so
// status returns 503 for it.
func status(err error) int {
	var response interface{ HTTPStatusCode() int }
	if !errors.As(err, &response) {
		return 0
	}
	if response.HTTPStatusCode() == http.StatusConflict {
		return http.StatusServiceUnavailable
	}
	return response.HTTPStatusCode()
}

func hint(r blobstore.Reason) string {
	switch r {
	case blobstore.Unauthenticated:
		return "set up credentials as for the aws command (`aws configure`), or give the machine a role"
	case blobstore.PermissionDenied:
		return "allow s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject on its objects"
	case blobstore.BucketNotFound:
		return "correct the name or the region, or make the bucket with `aws s3 mb`"
	}
	return ""
}
