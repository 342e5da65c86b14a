package clusterresolver

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseTopologyRejectsTooManyChips(t *testing.T) {
	_, err := parseTopology("TPU_TOPOLOGY", "1000x1000x1000")
	assert.ErrorContains(t, err, "not a topology")
	_, err = ParseBounds("TPU_PROCESS_BOUNDS", "65536,65536,65536")
	assert.Error(t, err)
	findings := Check(readEnv(t, "TPU_TOPOLOGY", strings.Repeat("9", 100_000), "TPU_ACCELERATOR_TYPE",
		strings.Repeat("v", 100_000)), Metadata{})
	require.NotEmpty(t, findings)
	for _, f := range findings {
		assert.Less(t, len(f.String()), longest)
	}
}

func TestParseAccelerator(t *testing.T) {
	for text, want := range map[string]struct{ chips, devicesPerChip, minHosts, maxHosts int }{
		"v2-8":         {4, 2, 1, 1},
		"v3-32":        {16, 2, 4, 4},
		"v4-32":        {16, 1, 4, 4},
		"v4-24":        {12, 1, 3, 3}, // no default shape, but slices of 2x2x3 have this type
		"v5p-4096":     {2048, 1, 512, 512},
		"v5litepod-1":  {1, 1, 1, 1},
		"v5litepod-8":  {8, 1, 1, 2},
		"v5litepod-16": {16, 1, 4, 4},
		"v6e-8":        {8, 1, 1, 2},
		"v6e-256":      {256, 1, 64, 64},
		"tpu7x-16":     {8, 2, 2, 2},
	} {
		got, err := parseAccelerator("type", text)
		require.NoError(t, err, text)
		assert.Equal(t, []int{want.chips, want.devicesPerChip, want.minHosts, want.maxHosts},
			[]int{got.chips, got.generation.DevicesPerChip, got.minHosts, got.maxHosts}, text)
	}
	for text, want := range map[string]string{
		"": "not an accelerator type", "v4": "not an accelerator type", "v4-": "not an accelerator type",
		"v4-0": "not an accelerator type", "v4--8": "not an accelerator type", "v4-99999999999": "not an accelerator type",
		"v4-9": "odd number of cores", "v99-8": "unknown TPU generation", "V4-8": "unknown TPU generation",
	} {
		_, err := parseAccelerator("type", text)
		assert.ErrorContains(t, err, want, text)
	}
}

func TestParseBoundsAndTopology(t *testing.T) {
	b, err := ParseBounds("X", "2, 2,4")
	require.NoError(t, err)
	assert.Equal(t, Bounds{2, 2, 4}, b)
	assert.Equal(t, 16, b.Size())
	assert.Equal(t, "2,2,4", b.String())
	four, err := ParseBounds("X", "2,2,1,2")
	require.NoError(t, err)
	assert.Equal(t, Bounds{2, 2, 1, 2}, four)
	assert.Equal(t, 8, four.Size())
	assert.Equal(t, "2,2,1,2", four.String())
	for _, bounds := range []Bounds{b, four, {}} {
		text, err := json.Marshal(bounds)
		require.NoError(t, err)
		var back Bounds
		require.NoError(t, json.Unmarshal(text, &back))
		assert.Equal(t, bounds, back)
	}
	for _, s := range []string{"", "1", "1,1", "1,1,1,1,1", "1,1,1,0", "1,1,1,", "0,1,1", "-1,1,1", "a,1,1", "1,1,",
		"99999999,1,1", "1000,1000,1000", "65536,65536,65536,65536"} {
		_, err := ParseBounds("X", s)
		assert.ErrorContains(t, err, "not a grid of three or four sizes", s)
	}
	n, err := parseTopology("X", "4x4")
	require.NoError(t, err)
	assert.Equal(t, 16, n)
	for _, s := range []string{"", "4", "4x", "x4", "4x0", "2x2x2x2", "4X4", "4,4", "1000x1000x1000"} {
		_, err := parseTopology("X", s)
		assert.ErrorContains(t, err, "not a topology", s)
	}
}
