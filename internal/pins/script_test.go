package pins

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheInstallerSaysWhatToDo runs the installer where it cannot work.
func TestTheInstallerSaysWhatToDo(t *testing.T) {
	if _, err := Find("cpu", runtime.GOARCH); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	// The tools of any system, but no Python.
	bin := filepath.Join(dir, "bin")
	require.NoError(t, os.Mkdir(bin, 0o755))
	for _, tool := range []string{"sh", "awk", "basename", "dirname", "uname", "tr", "mkdir", "mktemp", "rm"} {
		path, err := exec.LookPath(tool)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(bin, tool)))
	}
	noPip := filepath.Join(dir, "nopip")
	require.NoError(t, os.Mkdir(noPip, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(noPip, "python3"),
		[]byte("#!/bin/sh\necho 'No module named pip' >&2\nexit 1\n"), 0o755))
	withPip := filepath.Join(dir, "withpip")
	require.NoError(t, os.Mkdir(withPip, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(withPip, "python3"), []byte("#!/bin/sh\n[ \"$3\" = --version ]\n"),
		0o755))

	for name, c := range map[string]struct {
		env   []string
		words []string
	}{
		"a relative cache directory": {[]string{"PATH=" + bin, "XDG_CACHE_HOME=here"},
			[]string{"XDG_CACHE_HOME is here, a relative path"}},
		"no home directory": {[]string{"PATH=" + bin}, []string{"set XDG_CACHE_HOME or HOME"}},
		"no Python": {[]string{"PATH=" + bin, "HOME=" + dir}, []string{"needs python3 with pip",
			"set TPUSTRATEGY_CPU_PLUGIN"}},
		"no pip": {[]string{"PATH=" + noPip + ":" + bin, "HOME=" + dir}, []string{"No module named pip",
			"needs python3 with pip"}},
		"a cache that is no directory": {[]string{"PATH=" + withPip + ":" + bin, "XDG_CACHE_HOME=" + file},
			[]string{"cannot write to " + file + "/tpustrategy/plugins", "set XDG_CACHE_HOME"}},
		"no network": {[]string{"PATH=" + withPip + ":" + bin, "HOME=" + dir}, []string{"pip could not fetch xla-cpu-pjrt"}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sh", "install.sh", "cpu")
			cmd.Env = c.env
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit, "%s", out)
			assert.Equal(t, 1, exit.ExitCode())
			for _, w := range c.words {
				assert.Contains(t, string(out), w)
			}
			left, err := filepath.Glob(filepath.Join(dir, ".cache", "tpustrategy", "plugins", "*"))
			require.NoError(t, err)
			assert.Empty(t, left)
			_, err = os.Stat("here")
			assert.ErrorIs(t, err, os.ErrNotExist)
		})
	}
}
