package system

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSignsOfATPU(t *testing.T) {
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
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for path, text := range c.files {
				path = filepath.Join(dir, path)
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
			}
			host := hostFiles{dev: filepath.Join(dir, "dev"), pci: filepath.Join(dir, "pci")}
			assert.Equal(t, c.want, host.mayHaveTPU())
			s := &starter{}
			assert.Equal(t, !c.want, s.checkPresent(host) != nil)
			for _, asked := range []Options{{CPUDevices: 1}, {Plugin: "/libtpu.so"}} {
				s := &starter{opts: asked}
				assert.NoError(t, s.checkPresent(host))
			}
			without := func(string) string { return "" }
			assert.Equal(t, !c.want, DescribeOptions{Getenv: without}.checkQuery(host) != nil)
			assert.NoError(t, DescribeOptions{Getenv: without, Plugin: "/libtpu.so"}.checkQuery(host))
			assert.NoError(t, DescribeOptions{Getenv: func(name string) string {
				return map[string]string{"TPU_SKIP_MDS_QUERY": "1"}[name]
			}}.checkQuery(host))
		})
	}
}

func TestATPUPluginThatWasOnlyFoundIsNotOpenedWithoutATPU(t *testing.T) {
	if thisHost().mayHaveTPU() {
		t.Skip("this machine may have a TPU")
	}
	// Opening it would be another error: it is no plugin.
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

func TestASliceIsNotDescribedByAskingTheNetwork(t *testing.T) {
	if thisHost().mayHaveTPU() {
		t.Skip("this machine may have a TPU")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	_, err = Describe(context.Background(), "v5e:4x4", DescribeOptions{Getenv: func(name string) string {
		return map[string]string{"TPU_LIBRARY_PATH": self}[name]
	}})
	require.ErrorIs(t, err, ErrMetadataQuery)
}
