package pjrt_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestPluginAndClientProperties(t *testing.T) {
	leaktest.Check(t)
	p := plugintest.Open(t, "cpu")
	assert.GreaterOrEqual(t, p.APIVersion().Minor, 57)
	assert.Contains(t, p.Attributes(), "stablehlo_current_version")
	assert.NotEmpty(t, p.Extensions())
	c := plugintest.CPU(t, 4)
	assert.Same(t, p, c.Plugin())
	assert.Equal(t, "cpu", c.PlatformName())
	assert.NotEmpty(t, c.PlatformVersion())
	assert.Equal(t, 0, c.ProcessIndex())
	require.Len(t, c.Devices(), 4)
	assert.Equal(t, c.Devices(), c.AddressableDevices())
	for i, d := range c.Devices() {
		assert.Equal(t, i, d.ID())
		assert.True(t, d.Addressable())
		assert.Equal(t, i, d.LocalHardwareID())
		assert.Equal(t, "cpu", d.Kind())
		assert.NotEmpty(t, d.String())
		assert.NotEmpty(t, d.DebugString())
		require.NotNil(t, d.DefaultMemory())
		assert.Equal(t, "device", d.DefaultMemory().Kind())
		assert.Contains(t, d.DefaultMemory().Devices(), d)
		_, err := d.Memory("pinned_host")
		require.NoError(t, err)
		_, err = d.Memory("hbm")
		require.ErrorIs(t, err, pjrt.NotFound)
		_, err = d.MemoryStats()
		require.ErrorIs(t, err, pjrt.Unimplemented, "the CPU plugin has no allocator statistics")
	}
	d, err := c.LookupDevice(2)
	require.NoError(t, err)
	assert.Same(t, c.Devices()[2], d)
	_, err = c.LookupDevice(4)
	require.ErrorIs(t, err, pjrt.NotFound)
}

func TestNewClientChecksOptions(t *testing.T) {
	p := plugintest.Open(t, "cpu")
	for name, o := range map[string]map[string]any{
		"a struct": {"x": struct{}{}}, "a uint64": {"x": uint64(1)}, "a float64": {"x": 1.5}, "nil": {"x": nil},
		"strings": {"x": []string{"a"}},
		"no name": {"": 1}, "a NUL in the name": {"a\x00b": 1}, "a NUL in the value": {"a": "b\x00"},
		"no devices": {"cpu_device_count": 0}, "minus one device": {"cpu_device_count": -1},
		"too many devices": {"cpu_device_count": 1 << 40},
		"devices as text":  {"cpu_device_count": "2"}, "devices as bool": {"cpu_device_count": true},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.NewClient(background, pjrt.ClientOptions{Options: o})
			require.ErrorContains(t, err, "pjrt: option ")
		})
	}
	c, err := p.NewClient(background, pjrt.ClientOptions{Options: map[string]any{"cpu_device_count": int64(1), "s": "x",
		"f": float32(1), "b": true, "l": []int64{1, 2}, "i": []int{3}, "e": []int64{}}})
	require.NoError(t, err, "the CPU plugin takes options that it does not know")
	require.NoError(t, c.Close())
}
