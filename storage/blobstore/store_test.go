package blobstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gocloud.dev/blob/memblob"

	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/fakegcs"
	"github.com/tpustrategy/tpustrategy/storage/storagetest"
)

func TestAMemoryBucketKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		s, err := blobstore.New(memblob.OpenBucket(nil), blobstore.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	})
}

func TestCloudStorageKeepsTheContract(t *testing.T) {
	storagetest.Run(t, func(t *testing.T) storage.Store {
		return fakegcs.Start(t, "bucket").Open(t, "bucket", blobstore.Options{Prefix: "runs/one", ChunkBytes: 256 << 10,
			RetryTimeout: time.Second})
	})
}
