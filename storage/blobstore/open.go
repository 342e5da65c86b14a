package blobstore

import (
	"context"
	"errors"

	"gocloud.dev/blob"
)

// OpenURL opens the store at a URL with the driver of gocloud.dev/blob for scheme, which the
// program must import. It lists one object to check that the bucket is accessible. hint is the
// suggestion in the error if the driver cannot open the bucket. The caller must close the store.
func OpenURL(ctx context.Context, scheme, url string, service Service, hint string) (*Store, error) {
	p, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	p.Options.Service = service
	b, err := blob.OpenBucket(ctx, scheme+"://"+p.Bucket+"?"+p.Query.Encode())
	if err != nil {
		return nil, &Error{Op: "open", Store: p.Options.Name, Reason: InvalidRequest, Err: err, Hint: hint}
	}
	s, err := New(b, p.Options)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := s.Check(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}
