package mem

import (
	"context"
	"sync"

	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
)

func init() { storage.Register("mem", open) }

func open(ctx context.Context, url string) (storage.Store, error) { return Open(ctx, url) }

var (
	mu      sync.Mutex
	buckets = map[string]*blob.Bucket{}
)

// Open opens the store at a URL. Closing the store does not remove the bucket.
func Open(_ context.Context, url string) (*blobstore.Store, error) {
	p, err := blobstore.ParseURL(url)
	if err != nil {
		return nil, err
	}
	for key := range p.Query {
		return nil, &errkind.Fault{Op: "mem: open", Subject: p.Options.Name, Reason: "parameter " + key,
			Hint: "remove it: the parameters are chunk, patience and stall", Class: errkind.ValueError}
	}
	mu.Lock()
	defer mu.Unlock()
	b := buckets[p.Bucket]
	if b == nil {
		b = memblob.OpenBucket(nil)
		buckets[p.Bucket] = b
	}
	p.Options.KeepOpen = true
	return blobstore.New(b, p.Options)
}
