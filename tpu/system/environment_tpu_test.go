package system

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// hostWithTPU returns a host with a TPU device file and the given setting of transparent huge
// pages.
func hostWithTPU(t *testing.T, hugePages string) hostPaths {
	root := t.TempDir()
	for path, text := range map[string]string{"dev/accel0": "", "sys/kernel/mm/transparent_hugepage/enabled": hugePages} {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return hostPaths{dev: filepath.Join(root, "dev"), pci: root, root: root}
}

func TestPrepareTPUHostSetsLaunchBarrierAndWarnsOfHugePages(t *testing.T) {
	const barrier = "--xla_tpu_use_enhanced_launch_barrier"
	for name, c := range map[string]struct {
		opts   Options
		host   hostPaths
		before string
		want   string
	}{
		"nothing set": {host: hostWithTPU(t, "always [madvise] never"), want: barrier + "=true"},
		"other flags set": {host: hostWithTPU(t, "[always] madvise never"), before: "--xla_a=1", want: "--xla_a=1 " +
			barrier + "=true"},
		"the user's own":      {host: hostWithTPU(t, "[always]"), before: barrier + "=false", want: barrier + "=false"},
		"keep":                {host: hostWithTPU(t, "[never]"), opts: Options{KeepEnvironment: true}, before: "", want: ""},
		"CPU devices":         {host: hostWithTPU(t, "[never]"), opts: Options{CPUDevices: 2}, want: ""},
		"a machine with none": {host: hostPaths{dev: t.TempDir(), pci: t.TempDir()}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LIBTPU_INIT_ARGS", c.before)
			var log bytes.Buffer
			s := &starter{opts: c.opts, logger: slog.New(slog.NewTextHandler(&log, nil))}
			require.NoError(t, s.prepareTPUHost(c.host))
			assert.Equal(t, c.want, os.Getenv("LIBTPU_INIT_ARGS"))
			warned := c.host.root != "" && c.opts.CPUDevices == 0 && (name == "nothing set" || name == "keep")
			assert.Equal(t, warned, bytes.Contains(log.Bytes(),
				[]byte("echo always > /sys/kernel/mm/transparent_hugepage/enabled")), "%s", log.String())
			assert.Equal(t, c.want != c.before, bytes.Contains(log.Bytes(), []byte("set for libtpu")), "%s", log.String())
		})
	}
}

func TestCPUSlicesRequireCPUDevices(t *testing.T) {
	_, err := Open(t.Context(), Options{CPUSlices: 2})
	assert.ErrorContains(t, err, "CPUSlices is set without CPUDevices; the slices of a TPU cannot be changed")
}
