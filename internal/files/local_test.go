package files

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestURLsAreRejected(t *testing.T) {
	for _, url := range []string{"gs://bucket/run", "s3://b", "GS://b", "https://x/y", "file:///tmp/x",
		"my-scheme+2.x://x", "gs:/bucket", filepath.Join("gs://bucket", "run"), "hdfs:/x"} {
		err := CheckLocal(url)
		requireReason(t, err, IsURL)
		require.ErrorIs(t, err, errors.ErrUnsupported)
		_, _, err = Open(url)
		requireReason(t, err, IsURL)
		_, err = ReadFile(url, 1)
		requireReason(t, err, IsURL)
		_, err = Trust{}.WithProcess().CheckFile(url)
		requireReason(t, err, IsURL)
	}
	for _, path := range []string{"", "a", "/a:/b", "./gs://bucket", "run:1/x", "run:/x", "c:/windows", "c://x",
		"a/gs://b", "://x", "1s://x"} {
		assert.NoError(t, CheckLocal(path), path)
	}
}
