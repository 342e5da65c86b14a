package blobstore

import (
	"context"
	"slices"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/tpustrategy/tpustrategy/storage"
)

// pageSize is the number of objects per list request. It is the maximum of Google Cloud Storage and
// S3.
const pageSize = 1000

// List returns the objects whose names begin with prefix, sorted by name. It sends one request per
// thousand objects. It omits objects whose names are invalid according to [storage.CheckName].
func (s *Store) List(ctx context.Context, prefix string) ([]storage.Info, error) {
	var infos []storage.Info
	for token := blob.FirstPageToken; len(token) > 0; {
		err := s.retry(ctx, "list", prefix, func(ctx context.Context, g *stallGuard) error {
			return g.do(func() error {
				page, next, err := s.bucket.ListPage(ctx, token, pageSize,
					&blob.ListOptions{Prefix: s.prefix + prefix, BeforeList: s.opts.Service.List})
				if err != nil {
					return bucketError(err)
				}
				for _, o := range page {
					if name := strings.TrimPrefix(o.Key, s.prefix); storage.CheckName(name) == nil {
						infos = append(infos, storage.Info{Name: name, Size: o.Size, Modified: o.ModTime})
					}
				}
				token = next
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(infos, func(a, b storage.Info) int { return strings.Compare(a.Name, b.Name) })
	return infos, nil
}

// Remove removes an object with one request. It is not an error if the object does not exist.
func (s *Store) Remove(ctx context.Context, name string) error {
	if err := storage.CheckName(name); err != nil {
		return err
	}
	err := s.retry(ctx, "remove", name, func(ctx context.Context, g *stallGuard) error {
		return g.do(func() error { return s.bucket.Delete(ctx, s.prefix+name) })
	})
	if e, ok := err.(*Error); ok && e.Reason == NotFound { //nolint:errorlint // again returns an unwrapped *Error
		return nil
	}
	return err
}

// Check lists one object to detect a missing bucket or a missing permission.
func (s *Store) Check(ctx context.Context) error {
	return s.retry(ctx, "open", "", s.checkBucket)
}

func (s *Store) checkBucket(ctx context.Context, g *stallGuard) error {
	return g.do(func() error {
		_, _, err := s.bucket.ListPage(ctx, blob.FirstPageToken, 1,
			&blob.ListOptions{Prefix: s.prefix, BeforeList: s.opts.Service.List})
		return bucketError(err)
	})
}

// bucketError adds the reason BucketNotFound to a NotFound error of a list request.
func bucketError(err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return reasonError{err, BucketNotFound}
	}
	return err
}
