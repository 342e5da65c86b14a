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

// Open opens the store at a URL, and asks the bucket for one object. The caller closes the store.
func Open(ctx context.Context, url string) (*blobstore.Store, error) {
	return blobstore.OpenURL(ctx, "s3", url, blobstore.Service{Status: status, Hint: hint, List: list}, "")
}

// status returns the code of an answer. Two writers at the same moment are a conflict that passes.
func status(err error) int {
	var answer interface{ HTTPStatusCode() int }
	if !errors.As(err, &answer) {
		return 0
	}
	if answer.HTTPStatusCode() == http.StatusConflict {
		return http.StatusServiceUnavailable
	}
	return answer.HTTPStatusCode()
}

func hint(r blobstore.Reason) string {
	switch r {
	case blobstore.Unauthenticated:
		return "set up credentials as for the aws command (`aws configure`), or give the machine a role"
	case blobstore.Denied:
		return "allow s3:ListBucket on the bucket, and s3:GetObject, s3:PutObject and s3:DeleteObject on its objects"
	case blobstore.NoBucket:
		return "correct the name or the region, or make the bucket with `aws s3 mb`"
	}
	return ""
}
