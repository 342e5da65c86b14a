package system

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
)

func TestHostFilesHasTPU(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"nothing":                     {nil, false},
		"accel":                       {map[string]string{"dev/accel0": ""}, true},
		"vfio":                        {map[string]string{"dev/vfio/vfio": "", "dev/vfio/0": ""}, true},
		"vfio without an IOMMU":       {map[string]string{"dev/vfio/vfio": "", "dev/vfio/noiommu-0": ""}, true},
		"the driver of vfio alone":    {map[string]string{"dev/vfio/vfio": ""}, false},
		"a device that no driver has": {map[string]string{"pci/0000:00:05.0/vendor": "0x1ae0\n"}, true},
		"devices of others":           {map[string]string{"pci/0000:00:05.0/vendor": "0x8086\n"}, false},
		"a virtual network card": {map[string]string{"pci/0000:00:05.0/vendor": "0x1ae0\n",
			"pci/0000:00:05.0/class": "0x020000\n"}, false},
		"a virtual disk": {map[string]string{"pci/0000:00:05.0/vendor": "0x1ae0\n",
			"pci/0000:00:05.0/class": "0x010802\n"}, false},
		"an accelerator": {map[string]string{"pci/0000:00:05.0/vendor": "0x1ae0\n", "pci/0000:00:05.0/class": "0x020000\n",
			"pci/0000:00:06.0/vendor": "0x1ae0\n", "pci/0000:00:06.0/class": "0x120000\n"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for path, text := range c.files {
				path = filepath.Join(dir, path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			host := hostPaths{dev: filepath.Join(dir, "dev"), pci: filepath.Join(dir, "pci")}
			assert.Equal(t, c.want, host.hasTPU())
			s := &starter{}
			assert.Equal(t, !c.want, s.checkTPUPresent(host) != nil)
			for _, asked := range []Options{{CPUDevices: 1}, {Plugin: "/libtpu.so"}} {
				s := &starter{opts: asked}
				assert.NoError(t, s.checkTPUPresent(host))
			}
		})
	}
}

func TestHasTPU(t *testing.T) {
	assert.Equal(t, localHost().hasTPU(), HasTPU())
}

// fakeDevices is a runtime with devices without coordinates.
type fakeDevices struct {
	zeroRuntime
	platform string
	count    int
}

func (o fakeDevices) PlatformName() string { return o.platform }

func (o fakeDevices) Devices() []*pjrt.Device { return make([]*pjrt.Device, o.count) }

func TestDevicesWithoutCoordinatesFormLine(t *testing.T) {
	topology, err := (&starter{}).readTopology(fakeDevices{platform: "cuda", count: 3})
	require.NoError(t, err)
	assert.Equal(t, 3, topology.NumDevices())
	assert.Equal(t, [4]int{3, 1, 1, 1}, topology.MeshShape())
	topology, err = (&starter{opts: Options{MeshShape: []int{1, 2, 2, 2}}}).readTopology(fakeDevices{platform: "cuda",
		count: 8})
	require.NoError(t, err)
	assert.Equal(t, [4]int{1, 2, 2, 2}, topology.MeshShape())
	_, err = (&starter{opts: Options{MeshShape: []int{1, 2, 2, 2}}}).readTopology(fakeDevices{platform: "cuda", count: 3})
	assert.ErrorContains(t, err, "has size 8, but there are 3 devices")
	_, err = (&starter{opts: Options{MeshShape: []int{3, 1, 1, 1}}}).readTopology(fakeDevices{platform: "tpu", count: 3})
	assert.ErrorContains(t, err, "MeshShape is set, but the devices have coordinates")
}

func TestFoundTPUPluginIsNotOpenedWithoutTPU(t *testing.T) {
	if localHost().hasTPU() {
		t.Skip("this machine may have a TPU")
	}
	// The file is not a plugin, so opening it would return another error.
	self, err := os.Executable()
	require.NoError(t, err)
	_, err = Open(context.Background(), Options{Getenv: func(name string) string {
		return map[string]string{"TPU_LIBRARY_PATH": self}[name]
	}})
	require.ErrorIs(t, err, ErrNoTPU)
	var start *StartError
	require.ErrorAs(t, err, &start)
	assert.Equal(t, StepFind, start.Step)
}

// testSlice returns an arbitrary slice.
func testSlice(t *testing.T) tpu.Accelerator {
	t.Helper()
	a, err := tpu.ParseAccelerator("v5p-384")
	require.NoError(t, err)
	return a
}

// unsetLibtpuVariables unsets the variables that prepareHostWithoutTPU sets, until the end of the
// test.
func unsetLibtpuVariables(t *testing.T) {
	t.Helper()
	for _, s := range envWithoutTPU(testSlice(t)) {
		t.Setenv(s.name, "")
	}
}

func TestPrepareHostWithoutTPUKeepsSetVariables(t *testing.T) {
	dir := t.TempDir()
	nothing := hostPaths{dev: dir, pci: dir}
	withTPU := hostPaths{dev: t.TempDir(), pci: dir}
	require.NoError(t, os.WriteFile(filepath.Join(withTPU.dev, "accel0"), nil, 0o644))
	environ := func() map[string]string {
		set := map[string]string{}
		for _, s := range envWithoutTPU(testSlice(t)) {
			if value := os.Getenv(s.name); value != "" {
				set[s.name] = value
			}
		}
		return set
	}
	unsetLibtpuVariables(t)
	require.NoError(t, prepareHostWithoutTPU(withTPU, testSlice(t), DescribeOptions{}))
	assert.Empty(t, environ(), "a machine with a TPU keeps its environment")
	require.ErrorIs(t, prepareHostWithoutTPU(nothing, testSlice(t), DescribeOptions{KeepEnvironment: true}),
		ErrMetadataQuery)
	assert.ErrorContains(t, prepareHostWithoutTPU(nothing, testSlice(t), DescribeOptions{KeepEnvironment: true}),
		"TPU_ACCELERATOR_TYPE=v5p-384")
	assert.Empty(t, environ())
	var log bytes.Buffer
	require.NoError(t, os.Setenv("TPU_WORKER_ID", "7"))
	require.NoError(t, prepareHostWithoutTPU(nothing, testSlice(t),
		DescribeOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	assert.Equal(t, map[string]string{"TPU_SKIP_MDS_QUERY": "1", "TPU_ACCELERATOR_TYPE": "v5p-384",
		"TPU_WORKER_HOSTNAMES": "localhost",
		"TPU_WORKER_ID":        "7", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}, environ())
	assert.Contains(t, log.String(),
		"TPU_SKIP_MDS_QUERY=1 TPU_ACCELERATOR_TYPE=v5p-384 TPU_WORKER_HOSTNAMES=localhost ALLOW_MULTIPLE_LIBTPU_LOAD=1\n")
	log.Reset()
	require.NoError(t, prepareHostWithoutTPU(nothing, testSlice(t),
		DescribeOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
	assert.Empty(t, log.String(), "nothing is left to set")
	require.NoError(t, prepareHostWithoutTPU(nothing, testSlice(t), DescribeOptions{KeepEnvironment: true}))
}
