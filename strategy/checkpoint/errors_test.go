package checkpoint

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAURLIsNoPathOfACheckpoint(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, url := range []string{"gs://bucket/run", "s3://b/x", "https://host/x", filepath.Join("gs://bucket", "run")} {
		_, err := OpenFile(url, FileOptions{})
		var path *PathError
		require.ErrorAs(t, err, &path)
		require.Equal(t, url, path.Path)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		_, err = OpenManager(context.Background(), url, ManagerOptions{})
		require.Error(t, err)
	}
	require.Empty(t, names(t, "."))
}

func TestOfALaterFormatIsUnsupported(t *testing.T) {
	m := &plainManifest{Format: plainFormat, Version: formatVersion + 1}
	data, err := encodeManifest(m)
	require.NoError(t, err)
	_, err = parsePlainManifest(data)
	require.ErrorIs(t, err, errors.ErrUnsupported)
}
