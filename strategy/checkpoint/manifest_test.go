package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALaterVersionIsNotPassedOver(t *testing.T) {
	ctx := context.Background()
	for _, format := range []string{plainFormat, shardedFormat} {
		requireNotPassedOver(ctx, t, format)
	}
}

func requireNotPassedOver(ctx context.Context, t *testing.T, format string) {
	d := oldRun(t, ManagerOptions{})
	path := filepath.Join(d.Dir(), stepName(2), manifestFile)
	body := `{"format":"` + format + `","version":2,"step":2,"new":{}}`
	sum := checksum(0).update([]byte(body)).String()
	for _, text := range []string{
		`{"crc32c":"` + sum + `","checkpoint":` + body + `}`,
		`{"crc32c":"` + sum + `","checkpoint":` + body + `,"signature":"x"}`,
		`{"sha256":"another","checkpoint":` + body + `}`,
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		_, openErr := d.Open(ctx, 2)
		_, latestErr := d.Latest(ctx)
		_, _, intactErr := d.LatestIntact(ctx)
		for _, err := range []error{openErr, latestErr, intactErr} {
			require.ErrorIs(t, err, ErrVersion, text)
			assert.ErrorContains(t, err, "checkpoint: "+path+": its version is 2,")
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.NotErrorIs(t, err, ErrCorrupt)
		}
	}
	// A version number that results from damage is reported as damage.
	require.NoError(t, os.WriteFile(path, []byte(`{"crc32c":"00000000","checkpoint":`+body+`}`), 0o644))
	c, passed, err := d.LatestIntact(ctx)
	require.NoError(t, err)
	require.Len(t, passed, 1)
	require.NoError(t, c.Close())
}

func FuzzManifest(f *testing.F) {
	for _, m := range []*plainManifest{
		{Format: plainFormat, Version: formatVersion},
		{Format: plainFormat, Version: formatVersion, Step: 12, Metadata: map[string]string{"a": "b"}, Bytes: 100, CRC32C: 1,
			Variables: []savedVariable{{Path: "/a", Tensor: "a", CRC32C: 5, Trainable: true, Synchronization: "ON_READ",
				Aggregation: "SUM"}}},
		{Format: "other", Version: 7},
	} {
		data, err := encodeManifest(m)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(`{"crc32c":"00000000","checkpoint":null}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _ = parsePlainManifest(body)
		// With a valid checksum the body itself is parsed.
		m, err := parsePlainManifest([]byte(`{"crc32c":"` + checksum(0).update(body).String() + `","checkpoint":` +
			string(body) + `}`))
		if err != nil {
			return
		}
		data, err := encodeManifest(m)
		require.NoError(t, err)
		again, err := parsePlainManifest(data)
		require.NoError(t, err)
		require.Equal(t, m, again)
	})
}
