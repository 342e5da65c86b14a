package pjrt_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/pins"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// installedCopy copies the CPU plugin to a user's cache directory of its own, where the installer
// would put it.
func installedCopy(t *testing.T) string {
	t.Helper()
	library := plugintest.Path(t, "cpu")
	pin, err := pins.Find("cpu", runtime.GOARCH)
	require.NoError(t, err)
	if !strings.HasSuffix(library, pin.LibraryPath("/")) {
		t.Skip("the CPU plugin is not the installer's")
	}
	path := pin.LibraryPath(t.TempDir())
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	data, err := os.ReadFile(library)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data, 0o644))
	return path
}

// An installed plugin is hashed once. One that was changed or truncated since is an error that names the
// file and the command that installs it again, and does not reach the loader.
func TestADamagedInstalledPluginIsNotLoaded(t *testing.T) {
	path := installedCopy(t)
	record := path + pins.VerifiedSuffix
	inspect := func() (time.Duration, error) {
		start := time.Now()
		_, err := pjrt.VerifyPlugin(path)
		return time.Since(start), err
	}
	first, err := inspect()
	require.NoError(t, err)
	require.FileExists(t, record)
	best := time.Hour
	for range 20 {
		again, err := inspect()
		require.NoError(t, err)
		best = min(best, again)
	}
	t.Logf("an Inspect with the hash %v, with the record %v", first, best)
	assert.Less(t, best, first/4)

	requireDamage := func(what string) {
		t.Helper()
		_, err := pjrt.Open(path)
		var wrong *pjrt.PluginError
		require.ErrorAs(t, err, &wrong, what)
		require.Equal(t, pjrt.PluginDamaged, wrong.Reason, "%s: %v", what, err)
		require.ErrorContains(t, err, path)
		require.ErrorContains(t, err, "go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install cpu")
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	flip := func() { // one bit in the middle of the library
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		one := make([]byte, 1)
		_, err = f.ReadAt(one, info.Size()/2)
		require.NoError(t, err)
		one[0] ^= 4
		_, err = f.WriteAt(one, info.Size()/2)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	flip()
	requireDamage("a changed bit")
	flip()
	_, err = inspect()
	require.NoError(t, err, "it is as it was")

	text, err := os.ReadFile(record)
	require.NoError(t, err)
	for _, wrong := range []string{"", string(text[:len(text)-3])} {
		require.NoError(t, os.WriteFile(record, []byte(wrong), 0o644))
		_, err = inspect()
		require.NoError(t, err, "a wrong record is not damage")
		got, err := os.ReadFile(record)
		require.NoError(t, err)
		require.Equal(t, string(text), string(got))
	}
	require.NoError(t, os.Chtimes(path, time.Time{}, info.ModTime().Add(time.Hour)))
	_, err = inspect()
	require.NoError(t, err, "another time, with the same bytes")

	require.NoError(t, os.Truncate(path, info.Size()-1))
	requireDamage("truncated by a byte")
	require.NoError(t, os.Truncate(path, 100))
	requireDamage("truncated")
	require.NoError(t, os.Truncate(path, 0))
	requireDamage("empty")
}
