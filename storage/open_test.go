package storage_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/storage"
)

func TestASchemeIsOpenedByWhoRegisteredIt(t *testing.T) {
	ctx := context.Background()
	_, err := storage.Open(ctx, "gs://user:secret@bucket/run?key=secret")
	require.ErrorContains(t, err, "blobstore/gcs")
	require.NotContains(t, err.Error(), "secret")
	require.Equal(t, errkind.ValueError, errkind.KindOf(err))
	_, err = storage.Open(ctx, "unheard://of")
	require.ErrorContains(t, err, "storage.Register")

	asked := ""
	broken := errors.New("no bucket")
	storage.Register("fortest", func(_ context.Context, url string) (storage.Store, error) {
		asked = url
		return nil, broken
	})
	_, err = storage.Open(ctx, "ForTest://bucket/run")
	require.ErrorIs(t, err, broken)
	assert.Equal(t, "ForTest://bucket/run", asked)
	assert.Contains(t, storage.Schemes(), "fortest")
	assert.Panics(t, func() {
		storage.Register("fortest", func(context.Context, string) (storage.Store, error) { return nil, nil })
	})
	assert.Panics(t, func() { storage.Register("No Scheme", nil) })
	assert.True(t, storage.IsURL("gs://bucket"))
	assert.False(t, storage.IsURL("run/checkpoints"))
}

func TestAURLOfAFileIsAFolder(t *testing.T) {
	folder := t.TempDir()
	s, err := storage.Open(t.Context(), "file://"+folder)
	require.NoError(t, err)
	assert.Equal(t, folder, s.String())
	for _, place := range []string{"file://host/run", "file://", "file:///run?x=1"} {
		_, err := storage.Open(t.Context(), place)
		assert.ErrorContains(t, err, "file:///run/checkpoints", place)
	}
}
