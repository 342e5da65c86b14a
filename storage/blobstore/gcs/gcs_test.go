package gcs_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
	"github.com/tpustrategy/tpustrategy/storage/blobstore"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/gcs"
	"github.com/tpustrategy/tpustrategy/storage/blobstore/internal/test/fakegcs"
)

func TestAURLIsOpenedByItsScheme(t *testing.T) {
	server := fakegcs.Start(t, "bucket")
	t.Setenv("STORAGE_EMULATOR_HOST", server.Proxy.Host())
	s, err := storage.Open(t.Context(), "gs://bucket/runs/one?patience=1s&anonymous=true")
	require.NoError(t, err)
	require.Equal(t, "gs://bucket/runs/one", s.String())
	require.NoError(t, storage.PutBytes(t.Context(), s, "a", []byte("text"), storage.PutOptions{IfAbsent: true}))
	require.Equal(t, []string{"runs/one/a"}, server.Names("bucket"))
	data, err := storage.ReadAll(t.Context(), s, "a", 100)
	require.NoError(t, err)
	require.Equal(t, "text", string(data))
	require.NoError(t, s.Close())
	require.ErrorContains(t, storage.PutBytes(t.Context(), s, "b", nil, storage.PutOptions{}), "closed")
}

func TestWhatIsMissingIsSaidWhenTheStoreIsOpened(t *testing.T) {
	server := fakegcs.Start(t, "bucket")
	t.Setenv("STORAGE_EMULATOR_HOST", server.Proxy.Host())
	_, err := storage.Open(t.Context(), "gs://other/run")
	var e *blobstore.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, blobstore.BucketNotFound, e.Reason)
	assert.Contains(t, err.Error(), "gcloud storage buckets create gs://other")
	assert.Equal(t, errkind.NotFoundError, errkind.KindOf(err))

	for url, want := range map[string]string{
		"gs://bucket/run?anonymous=perhaps": "true or false",
		"gs://bucket/run?unheard=1":         "parameter unheard",
		"gs://bucket/run?chunk=none":        "a number of bytes",
	} {
		_, err := storage.Open(t.Context(), url)
		require.ErrorContains(t, err, want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), url)
	}
	_, err = gcs.New(nil, "bucket", blobstore.Options{})
	require.ErrorContains(t, err, "the client is nil")
}

func TestWithoutCredentialsItIsSaidHowToGetThem(t *testing.T) {
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none.json"))
	_, err := gcs.Open(t.Context(), "gs://bucket/run")
	var e *blobstore.Error
	require.ErrorAs(t, err, &e)
	assert.Equal(t, blobstore.Unauthenticated, e.Reason)
	assert.True(t, strings.Contains(err.Error(), "gcloud auth application-default login"), err.Error())
	assert.Equal(t, errkind.PermissionDeniedError, errkind.KindOf(err))
}
