package mem_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/storage"
	_ "github.com/tpustrategy/tpustrategy/storage/blobstore/mem"
)

func TestStoresOfOneNameShareABucketThatOutlivesThem(t *testing.T) {
	one, err := storage.Open(t.Context(), "mem://shared/run")
	require.NoError(t, err)
	require.NoError(t, storage.PutBytes(t.Context(), one, "a", []byte("text"), storage.PutOptions{}))
	require.NoError(t, one.Close())
	whole, err := storage.Open(t.Context(), "mem://shared")
	require.NoError(t, err)
	data, err := storage.ReadAll(t.Context(), whole, "run/a", 100)
	require.NoError(t, err)
	require.Equal(t, "text", string(data))
	other, err := storage.Open(t.Context(), "mem://other")
	require.NoError(t, err)
	infos, err := other.List(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, infos)
	_, err = storage.Open(t.Context(), "mem://shared?region=x")
	require.ErrorContains(t, err, "parameter region")
}
