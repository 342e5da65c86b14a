package pjrt_test

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/pins"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// findOptions returns options with a fake file system and environment.
func findOptions(kind string, env map[string]string, files ...string) pjrt.FindOptions {
	disk := fstest.MapFS{"some/dir": {Mode: fs.ModeDir}}
	for _, f := range files {
		disk[strings.TrimPrefix(f, "/")] = &fstest.MapFile{}
	}
	return pjrt.FindOptions{Kind: kind, GOARCH: "amd64", UserCacheDir: "/cache",
		Getenv: func(k string) string { return env[k] },
		Stat:   func(name string) (fs.FileInfo, error) { return disk.Stat(strings.TrimPrefix(name, "/")) }}
}

func installedPath(t *testing.T, kind string) string {
	t.Helper()
	pin, err := pins.Find(kind, "amd64")
	require.NoError(t, err)
	return pin.LibraryPath("/cache")
}

func TestFindSearchOrder(t *testing.T) {
	cpu, tpu := installedPath(t, "cpu"), installedPath(t, "tpu")
	all := []string{"/p.so", "/v.so", "/l.so", cpu, tpu, "/lib/libtpu.so", "/usr/lib/libtpu.so",
		"/usr/local/lib/libtpu.so"}
	env := map[string]string{"TPUSTRATEGY_CPU_PLUGIN": "/v.so", "TPUSTRATEGY_TPU_PLUGIN": "/v.so",
		"TPUSTRATEGY_CUDA_PLUGIN": "/v.so", "TPU_LIBRARY_PATH": "/l.so"}
	library := map[string]string{"TPU_LIBRARY_PATH": "/l.so"}
	for name, c := range map[string]struct {
		o      pjrt.FindOptions
		path   string
		path0  string
		source string
		tried  int
	}{
		"a path": {findOptions("cpu", env, all...), "/p.so", "/p.so", "Path", 1},
		"the variable": {findOptions("cpu", env, all...), "", "/v.so", "$TPUSTRATEGY_CPU_PLUGIN",
			2},
		"the TPU's own variable first": {findOptions("tpu", env, all...), "", "/v.so", "$TPUSTRATEGY_TPU_PLUGIN",
			2},
		"libtpu's variable": {findOptions("tpu", library, all...), "", "/l.so", "$TPU_LIBRARY_PATH",
			3},
		"libtpu's variable is not for the CPU": {findOptions("cpu", library, all...), "", cpu, "installer", 3},
		"the installer's place":                {findOptions("cpu", nil, all...), "", cpu, "installer", 3},
		"the installer's, for a TPU":           {findOptions("tpu", nil, all...), "", tpu, "installer", 4},
		"the image's": {findOptions("tpu", nil, "/lib/libtpu.so", "/usr/lib/libtpu.so"), "",
			"/lib/libtpu.so", "/lib", 5},
		"the image's, last": {findOptions("tpu", nil, "/usr/local/lib/libtpu.so"), "",
			"/usr/local/lib/libtpu.so", "/usr/local/lib", 7},
		"CUDA by its variable": {findOptions("cuda", env, all...), "", "/v.so", "$TPUSTRATEGY_CUDA_PLUGIN",
			2},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Path = c.path
			found, err := pjrt.FindPlugin(c.o)
			require.NoError(t, err)
			assert.Equal(t, c.path0, found.Path)
			assert.Equal(t, c.source, found.Source)
			require.Len(t, found.Tried, c.tried)
			last := found.Tried[len(found.Tried)-1]
			assert.NoError(t, last.Err)
			assert.Equal(t, found.Path, last.Path)
		})
	}
}

func TestFindErrors(t *testing.T) {
	wrongArch := findOptions("tpu", nil)
	wrongArch.GOARCH = "arm64"
	noCache := findOptions("cpu", nil)
	noCache.UserCacheDir = ""
	path := findOptions("cpu", nil)
	path.Path = "/nowhere.so"
	for name, c := range map[string]struct {
		o     pjrt.FindOptions
		words []string
		tried int
	}{
		"nothing for the CPU": {findOptions("cpu", nil),
			[]string{"`go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install cpu`", "make plugin",
				"$TPUSTRATEGY_CPU_PLUGIN: not set", filepath.Base(installedPath(t, "cpu"))}, 3},
		"nothing for a TPU": {findOptions("tpu", nil),
			[]string{"make plugin-tpu", "$TPU_LIBRARY_PATH: not set", "/usr/local/lib/libtpu.so"}, 7},
		"nothing for CUDA": {findOptions("cuda", nil), []string{"$TPUSTRATEGY_CUDA_PLUGIN"}, 3},
		"no wheel for the machine": {wrongArch,
			[]string{"not published for arm64",
				"set $TPUSTRATEGY_TPU_PLUGIN to the path of a plugin for this machine"}, 7},
		"no cache directory": {noCache,
			[]string{"no user cache directory", "set $HOME", "$TPUSTRATEGY_CPU_PLUGIN", "install cpu"}, 3},
		"a wrong path": {path, []string{"Path is /nowhere.so: file does not exist; correct or unset it"},
			1},
		"a wrong variable": {findOptions("cpu", map[string]string{"TPUSTRATEGY_CPU_PLUGIN": "/nowhere.so"},
			installedPath(t, "cpu")), []string{"$TPUSTRATEGY_CPU_PLUGIN is /nowhere.so", "unset"}, 2},
		"a wrong libtpu variable": {findOptions("tpu", map[string]string{"TPU_LIBRARY_PATH": "/some/dir"},
			installedPath(t, "tpu")), []string{"$TPU_LIBRARY_PATH", "not a regular file"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pjrt.FindPlugin(c.o)
			var fe *pjrt.FindError
			require.ErrorAs(t, err, &fe)
			require.ErrorIs(t, err, fs.ErrNotExist)
			assert.Len(t, fe.Tried, c.tried)
			for _, w := range c.words {
				assert.Contains(t, err.Error(), w)
			}
		})
	}
	_, err := pjrt.FindPlugin(findOptions("gpu", nil))
	require.ErrorContains(t, err, "pjrt: option ")
	_, err = pjrt.FindPlugin(pjrt.FindOptions{Kind: "cpu"})
	require.ErrorContains(t, err, "pjrt: option ", "no Stat")
	bare := findOptions("cpu", nil, installedPath(t, "cpu"))
	bare.Getenv = nil
	_, err = pjrt.FindPlugin(bare)
	require.NoError(t, err, "no Getenv is an empty environment")
}
