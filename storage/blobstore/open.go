package blobstore

import (
	"context"
	"errors"

	"gocloud.dev/blob"
)

// OpenURL opens the store at a URL by the driver that a program imports of gocloud.dev/blob for the
// scheme, and asks the bucket for one object. hint says what to do where the driver refuses; it may
// be empty. The caller closes the store.
func OpenURL(ctx context.Context, scheme, url string, service Service, hint string) (*Store, error) {
	p, err := ParsePlace(url)
	if err != nil {
		return nil, err
	}
	p.Options.Service = service
	b, err := blob.OpenBucket(ctx, scheme+"://"+p.Bucket+"?"+p.Query.Encode())
	if err != nil {
		return nil, &Error{Op: "open", Place: p.Options.Place, Reason: Refused, Err: err, Hint: hint}
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
