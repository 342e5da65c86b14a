package pjrt_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// TestOpenRejectsLibraryThatOthersCanModify opens libraries whose constructor creates a file.
func TestOpenRejectsLibraryThatOthersCanModify(t *testing.T) {
	ran := filepath.Join(t.TempDir(), "ran")
	source := `#include <stdio.h>
__attribute__((constructor)) static void ran(void) { FILE *f = fopen("` + ran + `", "w"); if (f) fclose(f); }
void *GetPjrtApi(void) { return 0; }`
	so := library(t, "constructor", source)
	folder := filepath.Dir(so)
	rejects := func(path string, want pjrt.PluginReason, words ...string) {
		t.Helper()
		_, err := pjrt.Open(path)
		var pe *pjrt.PluginError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, want, pe.Reason, "%v", err)
		for _, word := range words {
			require.ErrorContains(t, err, word)
		}
		require.NoFileExists(t, ran)
	}
	for path, modes := range map[string][2]os.FileMode{so: {0o777, 0o755}, folder: {0o777, 0o755}} {
		require.NoError(t, os.Chmod(path, modes[0]))
		rejects(so, pjrt.PluginUntrusted, path, "mode 0777", "owner uid", "chmod o-w "+path)
		require.NoError(t, os.Chmod(path, modes[1]))
	}
	if os.Geteuid() == 0 {
		require.NoError(t, os.Chown(so, 4242, 4242))
		rejects(so, pjrt.PluginUntrusted, "owner uid 4242", "chown 0 "+so)
		_, err := pjrt.VerifyPlugin(so, pjrt.OpenOptions{Owners: []int{4242}})
		require.NoError(t, err)
		require.NoError(t, os.Chown(so, 0, 0))
	}
	rejects("gs://bucket/libtpu.so", pjrt.PluginMissing, "it is a URL")

	image, err := os.ReadFile(so)
	require.NoError(t, err)
	sum := sha256.Sum256(image)
	wrong := sum
	wrong[0] ^= 1
	for _, text := range []string{hex.EncodeToString(wrong[:]), "x"} {
		_, err = pjrt.Open(so, pjrt.OpenOptions{SHA256: text})
		var pe *pjrt.PluginError
		require.ErrorAs(t, err, &pe)
		require.Equal(t, pjrt.PluginChanged, pe.Reason)
		require.NoFileExists(t, ran)
	}
	link := filepath.Join(t.TempDir(), "link.so")
	require.NoError(t, os.Symlink(so, link))
	_, err = pjrt.VerifyPlugin(link, pjrt.OpenOptions{}, pjrt.OpenOptions{SHA256: "00"})
	require.ErrorContains(t, err, "pass at most one")
	real, err := pjrt.VerifyPlugin(link, pjrt.OpenOptions{SHA256: hex.EncodeToString(sum[:])})
	require.NoError(t, err)
	require.Equal(t, so, real)
	require.NoFileExists(t, ran)
	_, err = pjrt.Open(so)
	require.Error(t, err, "the library has no function table")
	assert.FileExists(t, ran, "a trusted library is loaded")
}

func TestEachOpenChecksLibrary(t *testing.T) {
	so := fake(t, "each")
	_, err := pjrt.Open(so)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(so, 0o777))
	_, err = pjrt.Open(so)
	var pe *pjrt.PluginError
	require.ErrorAs(t, err, &pe)
	require.Equal(t, pjrt.PluginUntrusted, pe.Reason)
}

func TestOpenRelativePath(t *testing.T) {
	path := plugintest.Path(t, "cpu")
	t.Chdir(filepath.Dir(path))
	p, err := pjrt.Open(filepath.Base(path))
	require.NoError(t, err)
	require.Equal(t, path, p.Path())
}
