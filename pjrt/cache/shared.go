package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// SharedKey returns the key that a store holds for all who share its programs; the first who asks
// makes it. Who may write to the store decides what runs on the hosts then, and who may read it can
// sign: take it for a store that only the job's own accounts reach.
func SharedKey(ctx context.Context, store storage.Store) ([]byte, error) {
	k, err := storage.ReadOrPut(ctx, store, sharedName, newKey(), maxKey)
	if err != nil {
		return nil, fail("read the key of "+store.String(), err)
	}
	if len(k) < keyBytes/2 {
		return nil, &errkind.Fault{Op: "cache: read the key of " + store.String(), Reason: fmt.Sprintf("%s has %d bytes, at least %d are needed", sharedName, len(k), keyBytes/2),
			Class: errkind.DataLossError, Hint: "remove it, and a new one is made"}
	}
	return k, nil
}

// sharedName is the object that has a store's key.
const sharedName = "compile-cache.key"

// share puts an entry into the store, unless another process was first.
func (c *Cache) share(ctx context.Context, k key, entry []byte) {
	if c.shared == nil {
		return
	}
	name := c.name(k)
	if there, err := c.shared.Open(ctx, name); err == nil { // it need not be sent
		_ = there.Close()
		return
	}
	err := storage.PutBytes(ctx, c.shared, name, entry, storage.PutOptions{IfAbsent: true})
	if err != nil && !errors.Is(err, storage.ErrExists) {
		c.unwritten(c.shared.String()+": "+name, err)
	}
}
