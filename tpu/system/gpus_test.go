package system

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

func TestParseGPUs(t *testing.T) {
	for name, count := range map[string]int{"h100:8": 8, " h100 ": 1, "b200:64": 64, "a100:3": 3, "h200:1": 1} {
		assert.True(t, IsGPUName(name), name)
		require.NoError(t, CheckSliceName(name), name)
		_, n, err := parseGPUs(name)
		require.NoError(t, err)
		assert.Equal(t, count, n, name)
	}
	for name, want := range map[string]string{
		"h100:0":  "0 GPUs; use a number from 1",
		"h100:12": "12 GPUs do not fill complete hosts; use at most 8, or a multiple",
		"h900:8":  "unknown GPU; use one of a100, h100, h200, b200", "h100:999999": "use a number from 1 to",
	} {
		assert.True(t, IsGPUName(name), name)
		err := CheckSliceName(name)
		assert.ErrorContains(t, err, want)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err), name)
	}
	for _, name := range []string{"v5e:4x4", "v5p-128", "2x v5e-256", "tpu7x:2x2x1", "cpu:8", "h100:", "h100:-1",
		"h100:2x4", ""} {
		assert.False(t, IsGPUName(name), name)
	}
	require.NoError(t, CheckSliceName("v5e:4x4"))
	assert.Error(t, CheckSliceName("v5e:3x3"))
}

// The error contains the command that installs the plugin.
func TestDescribeGPUsWithoutPluginFails(t *testing.T) {
	_, err := Describe(t.Context(), "h100:8", DescribeOptions{Getenv: func(string) string { return "" },
		Plugin: "/nowhere/xla_cuda_plugin.so"})
	var missing *pjrt.FindError
	require.ErrorAs(t, err, &missing)
	assert.Equal(t, "cuda", missing.Plugin)
	libtpu := filepath.Join(t.TempDir(), "libtpu.so")
	require.NoError(t, os.WriteFile(libtpu, nil, 0o600))
	_, err = Describe(t.Context(), "h100:8", DescribeOptions{Plugin: libtpu})
	assert.ErrorContains(t, err, "libtpu cannot describe GPUs; use the CUDA plugin")
	_, err = Describe(t.Context(), "h100:12", DescribeOptions{})
	assert.ErrorContains(t, err, "do not fill complete hosts")
	_, err = Describe(t.Context(), "h100:8", DescribeOptions{Wrap: &[3]bool{true}})
	assert.ErrorContains(t, err, "Slices and Wrap cannot be used with GPUs")
}
