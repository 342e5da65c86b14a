package blobstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob/memblob"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
)

func TestAPlaceIsTakenApart(t *testing.T) {
	p, err := blobstore.ParseURL("GS://bucket/runs/one/?patience=5m&stall=2s&chunk=1048576&region=x")
	require.NoError(t, err)
	assert.Equal(t, "gs", p.Scheme)
	assert.Equal(t, "bucket", p.Bucket)
	assert.Equal(t, "runs/one", p.Prefix)
	assert.Equal(t, "region=x", p.Query.Encode())
	assert.Equal(t, blobstore.Options{Name: "gs://bucket/runs/one", Prefix: "runs/one", ChunkBytes: 1 << 20,
		RetryTimeout: 5 * time.Minute, StallTimeout: 2 * time.Second}, p.Options)
	p, err = blobstore.ParseURL("s3://bucket")
	require.NoError(t, err)
	assert.Equal(t, blobstore.Options{Name: "s3://bucket"}, p.Options)
}

func TestPlacesThatAreNoneAreErrors(t *testing.T) {
	for text, want := range map[string]string{
		"gs:///run":                   "gs://bucket/run",
		"gs://user:secret@bucket/run": "configure credentials as the service expects",
		"gs://bucket/a//b":            "an element is empty",
		"gs://bucket/../b":            "an element is empty, begins with a dot",
		"gs://bucket/run?patience=5":  "write a duration",
		"gs://bucket/run?stall=-1s":   "write a duration",
		"gs://bucket/run?chunk=big":   "a number of bytes",
		"gs://%zz":                    "cannot be parsed",
	} {
		_, err := blobstore.ParseURL(text)
		require.ErrorContains(t, err, want, text)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), text)
		assert.NotContains(t, err.Error(), "secret")
	}
}

func TestOptionsThatAreNoneAreErrors(t *testing.T) {
	_, err := blobstore.New(nil, blobstore.Options{})
	require.ErrorContains(t, err, "the bucket is nil")
	bucket := memblob.OpenBucket(nil)
	defer bucket.Close()
	for _, opts := range []blobstore.Options{{ChunkBytes: -1}, {RetryTimeout: -1}, {StallTimeout: -1}, {Prefix: "/a"}} {
		_, err := blobstore.New(bucket, opts)
		require.Error(t, err)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	}
}
