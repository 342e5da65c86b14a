package cache

import (
	"context"
	"errors"
	"fmt"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

// StoreSigningKey returns the signing key that is stored in a store. The first call creates the
// key. Everyone who can read the store can sign programs for all hosts that use this key, and
// everyone who can write to the store can replace the key. Use StoreSigningKey only if the store is
// accessible to the accounts of the job alone.
func StoreSigningKey(ctx context.Context, store storage.Store) ([]byte, error) {
	key, err := storage.ReadOrPut(ctx, store, storeKeyName, newKey(), maxKeyFileSize)
	if err != nil {
		return nil, opError("read the key of "+store.String(), err)
	}
	if len(key) < signingKeySize/2 {
		return nil, &errkind.Fault{Op: "cache: read the key of " + store.String(), Class: errkind.DataLossError,
			Reason: fmt.Sprintf("%s has %d bytes, but at least %d are required", storeKeyName, len(key), signingKeySize/2),
			Hint:   "remove it to create a new key"}
	}
	return key, nil
}

const storeKeyName = "compile-cache.key"

// uploadEntry writes an entry to the shared store, unless the store already contains the entry.
func (c *Cache) uploadEntry(ctx context.Context, key entryKey, entry []byte) {
	if c.sharedStore == nil {
		return
	}
	name := c.entryName(key)
	if object, err := c.sharedStore.Open(ctx, name); err == nil { // avoid sending the contents
		_ = object.Close()
		return
	}
	err := storage.PutBytes(ctx, c.sharedStore, name, entry, storage.PutOptions{IfAbsent: true})
	if err != nil && !errors.Is(err, storage.ErrExists) {
		c.logWriteError(c.sharedStore.String()+": "+name, err)
	}
}
