package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
)

// commandLine runs the command line in this process.
func commandLine(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	environ := append(os.Environ(), env...)
	a := &app{stdout: &out, stderr: &errs, stdin: strings.NewReader(""), environ: environ,
		getenv: func(name string) string {
			for i := len(environ) - 1; i >= 0; i-- {
				if key, value, _ := strings.Cut(environ[i], "="); key == name {
					return value
				}
			}
			return ""
		}}
	code = a.run(t.Context(), args)
	return code, out.String(), errs.String()
}

func TestInstallLeavesWhatIsThereAlone(t *testing.T) {
	path := plugintest.Path(t, "cpu")
	cache, _, ok := strings.Cut(path, filepath.Join("/tpustrategy", "plugins"))
	if !ok {
		t.Skip("the plugin was not installed by the installer")
	}
	before, err := os.Stat(path)
	require.NoError(t, err)
	code, stdout, stderr := commandLine(t, []string{"XDG_CACHE_HOME=" + cache}, "install", "cpu", "--json")
	require.Zero(t, code, stderr)
	var paths map[string]string
	require.NoError(t, json.Unmarshal([]byte(stdout), &paths))
	assert.Equal(t, map[string]string{"cpu": path}, paths)
	after, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, before.ModTime(), after.ModTime())
	code, stdout, _ = commandLine(t, []string{"XDG_CACHE_HOME=" + cache}, "install", "cpu")
	require.Zero(t, code)
	assert.Equal(t, "cpu  "+path+"\n", stdout)
	code, stdout, _ = commandLine(t, []string{"XDG_CACHE_HOME=" + cache}, "install", "cpu", "--path")
	require.Zero(t, code)
	assert.Equal(t, path+"\n", stdout)
}

func TestAnInstallThatFailsIsAnErrorAndLeavesNothing(t *testing.T) {
	bin, cache := t.TempDir(), t.TempDir()
	python := "#!/bin/sh\necho 'pip: no network here' >&2\nexit 1\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "python3"), []byte(python), 0o755))
	code, _, stderr := commandLine(t, []string{"XDG_CACHE_HOME=" + cache, "PATH=" + bin + ":" + os.Getenv("PATH")},
		"install", "cpu")
	assert.Equal(t, exitMissing, code)
	assert.Contains(t, stderr, "pip: no network here")
	assert.Contains(t, stderr, "install cpu: the installer failed: exit status 1")
	left, err := filepath.Glob(filepath.Join(cache, "tpustrategy", "plugins", "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}

func TestAnInstallWithoutAPlaceForItsFilesSaysWhichToSet(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	code, _, stderr := commandLine(t, nil, "install", "cpu")
	assert.Equal(t, exitMissing, code)
	assert.Contains(t, stderr, "set TMPDIR")
}

func TestAnInstallerThatCannotStartPointsToNoMessages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	code, _, stderr := commandLine(t, nil, "install", "cpu")
	assert.Equal(t, exitMissing, code)
	assert.Contains(t, stderr, `"sh": executable file not found`)
	assert.NotContains(t, stderr, "above")
}
