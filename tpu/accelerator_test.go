package tpu

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseAcceleratorReturnsCloudShapes(t *testing.T) {
	tests := []struct {
		text                         string
		topology                     string
		accelType                    string
		chips, cores, devices, hosts int
	}{
		{"v2-8", "v2:2x2", "v2-8", 4, 8, 8, 1},
		{"v2-512", "v2:16x16", "v2-512", 256, 512, 512, 64},
		{"v3-32", "v3:4x4", "v3-32", 16, 32, 32, 4},
		{"v3-64", "v3:4x8", "v3-64", 32, 64, 64, 8},
		{"v3-2048", "v3:32x32", "v3-2048", 1024, 2048, 2048, 256},
		{"v4-8", "v4:2x2x1", "v4-8", 4, 8, 4, 1},
		{"v4-16", "v4:2x2x2", "v4-16", 8, 16, 8, 2},
		{"v4-32", "v4:2x2x4", "v4-32", 16, 32, 16, 4},
		{"v4-64", "v4:2x4x4", "v4-64", 32, 64, 32, 8},
		{"v4-128", "v4:4x4x4", "v4-128", 64, 128, 64, 16},
		{"v4-4096", "v4:8x16x16", "v4-4096", 2048, 4096, 2048, 512},
		{"v5litepod-1", "v5e:1x1", "v5litepod-1", 1, 1, 1, 1},
		{"v5litepod-4", "v5e:2x2", "v5litepod-4", 4, 4, 4, 1},
		{"v5litepod-8", "v5e:2x4", "v5litepod-8", 8, 8, 8, 1},
		{"v5litepod-16", "v5e:4x4", "v5litepod-16", 16, 16, 16, 4},
		{"v5e-16", "v5e:4x4", "v5litepod-16", 16, 16, 16, 4},
		{"v5lite-256", "v5e:16x16", "v5litepod-256", 256, 256, 256, 64},
		{"v5p-8", "v5p:2x2x1", "v5p-8", 4, 8, 4, 1},
		{"v5p-128", "v5p:4x4x4", "v5p-128", 64, 128, 64, 16},
		{"v5p-12288", "v5p:16x16x24", "v5p-12288", 6144, 12288, 6144, 1536},
		{"v6e-256", "v6e:16x16", "v6e-256", 256, 256, 256, 64},
		{"tpu7x-8", "tpu7x:2x2x1", "tpu7x-8", 4, 8, 8, 1},
		{"v7x-8", "tpu7x:2x2x1", "tpu7x-8", 4, 8, 8, 1},
		{"v5p:4x4x12", "v5p:4x4x12", "v5p-384", 192, 384, 192, 48},
		{"v5e:2x4x1", "v5e:2x4", "v5litepod-8", 8, 8, 8, 1},
	}
	for _, test := range tests {
		t.Run(test.text, func(t *testing.T) {
			a, err := ParseAccelerator(test.text)
			require.NoError(t, err)
			assert.Equal(t, test.topology, a.String())
			assert.Equal(t, test.accelType, a.Type())
			assert.Equal(t, []int{test.chips, test.cores, test.devices, test.hosts}, []int{a.Chips(), a.Cores(), a.Devices(),
				a.Hosts()})
			back, err := ParseAccelerator(a.String())
			require.NoError(t, err)
			assert.Equal(t, a, back)
			topology, err := a.Topology()
			require.NoError(t, err)
			assert.Equal(t, a.Devices(), topology.NumDevices())
			assert.Equal(t, a.Hosts(), topology.NumTasks())
			assert.Empty(t, topology.MissingDevices())
		})
	}
}

func TestParseAcceleratorRejectsInvalidText(t *testing.T) {
	for text, want := range map[string]string{
		"":              "the size is missing",
		"v4":            "the size is missing",
		"v1-8":          `unknown generation "v1"`,
		"v4-0":          "invalid number",
		"v4--8":         "invalid number",
		"v4-+8":         "invalid number",
		"v4-08":         "invalid number",
		"v4-9999999999": "invalid number",
		"v4-9":          "divisible by 2",
		"v4-12":         "6 chips have no default shape; the nearest are v4-8 (v4:2x2x1) and v4-16 (v4:2x2x2)",
		"v6e-512":       "more than the 256",
		"v5e:4":         "invalid shape",
		"v5e:4x4x2":     "invalid shape",
		"v5p:4x4":       "invalid shape",
		"v5p:4x4x0":     "invalid shape",
		"v5p:4x4x":      "invalid shape",
		"v5p:99x99x99":  "more than the 8960",
		" v4-8":         "unknown generation",
	} {
		_, err := ParseAccelerator(text)
		var bad *AcceleratorError
		if assert.ErrorAs(t, err, &bad, text) {
			assert.Equal(t, text, bad.Text)
			assert.ErrorContains(t, err, want, text)
		}
	}
}

func TestZeroAcceleratorIsInvalid(t *testing.T) {
	_, err := Accelerator{}.Topology()
	assert.Error(t, err)
	assert.Zero(t, Accelerator{}.Hosts())
}

func TestGenerationsAreConsistent(t *testing.T) {
	for _, g := range Generations() {
		for _, name := range []string{g.Name, g.TypePrefix} {
			got, ok := LookupGeneration(name)
			assert.True(t, ok)
			assert.Equal(t, g, got)
		}
		assert.Zero(t, g.CoresPerChip%g.DevicesPerChip, g.Name)
		assert.LessOrEqual(t, g.ChipsPerHost, g.MaxChipsPerHost, g.Name)
	}
	a, err := ParseAccelerator("v5p-128")
	require.NoError(t, err)
	assert.EqualValues(t, 64*95<<30, a.HBMBytes())
	assert.InDelta(t, 64*459e12, a.PeakFLOPS(), 1)
}

func FuzzParseAccelerator(f *testing.F) {
	for _, seed := range []string{"v5litepod-16", "v5e-16", "v4-8", "v5p-128", "v6e-256", "tpu7x-8", "v2-8", "v3-32",
		"v5p:4x4x4", "v5e:2x4x1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := ParseAccelerator(text)
		if err != nil {
			return
		}
		back, err := ParseAccelerator(a.String())
		require.NoError(t, err)
		require.Equal(t, a, back)
		require.Positive(t, a.Hosts())
		require.LessOrEqual(t, a.Chips(), a.Generation().MaxChips)
	})
}
