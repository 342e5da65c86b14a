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

// machine is a disk and an environment for Find.
func machine(kind string, env map[string]string, files ...string) pjrt.FindOptions {
	disk := fstest.MapFS{"some/dir": {Mode: fs.ModeDir}}
	for _, f := range files {
		disk[strings.TrimPrefix(f, "/")] = &fstest.MapFile{}
	}
	return pjrt.FindOptions{Kind: kind, GOARCH: "amd64", UserCacheDir: "/cache", Getenv: func(k string) string { return env[k] },
		Stat: func(name string) (fs.FileInfo, error) { return disk.Stat(strings.TrimPrefix(name, "/")) }}
}

func installed(t *testing.T, kind string) string {
	t.Helper()
	pin, err := pins.For(kind, "amd64")
	require.NoError(t, err)
	return pin.LibraryPath("/cache")
}

func TestFindGoesThroughItsPlacesInOrder(t *testing.T) {
	cpu, tpu := installed(t, "cpu"), installed(t, "tpu")
	all := []string{"/p.so", "/v.so", "/l.so", cpu, tpu, "/lib/libtpu.so", "/usr/lib/libtpu.so", "/usr/local/lib/libtpu.so"}
	env := map[string]string{"TPUSTRATEGY_CPU_PLUGIN": "/v.so", "TPUSTRATEGY_TPU_PLUGIN": "/v.so", "TPUSTRATEGY_CUDA_PLUGIN": "/v.so", "TPU_LIBRARY_PATH": "/l.so"}
	library := map[string]string{"TPU_LIBRARY_PATH": "/l.so"}
	for name, c := range map[string]struct {
		o      pjrt.FindOptions
		path   string
		path0  string
		source string
		tried  int
	}{
		"a path":                               {machine("cpu", env, all...), "/p.so", "/p.so", "Path", 1},
		"the variable":                         {machine("cpu", env, all...), "", "/v.so", "$TPUSTRATEGY_CPU_PLUGIN", 2},
		"the TPU's own variable first":         {machine("tpu", env, all...), "", "/v.so", "$TPUSTRATEGY_TPU_PLUGIN", 2},
		"libtpu's variable":                    {machine("tpu", library, all...), "", "/l.so", "$TPU_LIBRARY_PATH", 3},
		"libtpu's variable is not for the CPU": {machine("cpu", library, all...), "", cpu, "installer", 3},
		"the installer's place":                {machine("cpu", nil, all...), "", cpu, "installer", 3},
		"the installer's, for a TPU":           {machine("tpu", nil, all...), "", tpu, "installer", 4},
		"the image's":                          {machine("tpu", nil, "/lib/libtpu.so", "/usr/lib/libtpu.so"), "", "/lib/libtpu.so", "/lib", 5},
		"the image's, last":                    {machine("tpu", nil, "/usr/local/lib/libtpu.so"), "", "/usr/local/lib/libtpu.so", "/usr/local/lib", 7},
		"CUDA by its variable":                 {machine("cuda", env, all...), "", "/v.so", "$TPUSTRATEGY_CUDA_PLUGIN", 2},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.Path = c.path
			found, err := pjrt.Find(c.o)
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

func TestFindSaysWhatItTriedAndWhatToDo(t *testing.T) {
	wrongArch := machine("tpu", nil)
	wrongArch.GOARCH = "arm64"
	noCache := machine("cpu", nil)
	noCache.UserCacheDir = ""
	path := machine("cpu", nil)
	path.Path = "/nowhere.so"
	for name, c := range map[string]struct {
		o     pjrt.FindOptions
		words []string
		tried int
	}{
		"nothing for the CPU":      {machine("cpu", nil), []string{"`go run -mod=mod github.com/tpustrategy/tpustrategy/cmd/tpustrategy install cpu`", "make plugin", "$TPUSTRATEGY_CPU_PLUGIN: not set", filepath.Base(installed(t, "cpu"))}, 3},
		"nothing for a TPU":        {machine("tpu", nil), []string{"make plugin-tpu", "$TPU_LIBRARY_PATH: not set", "/usr/local/lib/libtpu.so"}, 7},
		"nothing for CUDA":         {machine("cuda", nil), []string{"$TPUSTRATEGY_CUDA_PLUGIN"}, 3},
		"no wheel for the machine": {wrongArch, []string{"not published for arm64", "set $TPUSTRATEGY_TPU_PLUGIN to the path of one that was made for this machine"}, 7},
		"no cache directory":       {noCache, []string{"no user cache directory", "set $HOME", "$TPUSTRATEGY_CPU_PLUGIN", "install cpu"}, 3},
		"a wrong path":             {path, []string{"Path is /nowhere.so: file does not exist; correct or unset it"}, 1},
		"a wrong variable":         {machine("cpu", map[string]string{"TPUSTRATEGY_CPU_PLUGIN": "/nowhere.so"}, installed(t, "cpu")), []string{"$TPUSTRATEGY_CPU_PLUGIN is /nowhere.so", "unset"}, 2},
		"a wrong libtpu variable":  {machine("tpu", map[string]string{"TPU_LIBRARY_PATH": "/some/dir"}, installed(t, "tpu")), []string{"$TPU_LIBRARY_PATH", "not a regular file"}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pjrt.Find(c.o)
			var fe *pjrt.FindError
			require.ErrorAs(t, err, &fe)
			require.ErrorIs(t, err, fs.ErrNotExist)
			assert.Len(t, fe.Tried, c.tried)
			for _, w := range c.words {
				assert.Contains(t, err.Error(), w)
			}
		})
	}
	_, err := pjrt.Find(machine("gpu", nil))
	require.ErrorContains(t, err, "pjrt: option ")
	_, err = pjrt.Find(pjrt.FindOptions{Kind: "cpu"})
	require.ErrorContains(t, err, "pjrt: option ", "no Stat")
	bare := machine("cpu", nil, installed(t, "cpu"))
	bare.Getenv = nil
	_, err = pjrt.Find(bare)
	require.NoError(t, err, "no Getenv is an empty environment")
}
