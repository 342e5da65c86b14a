package tpu_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/tpu"
)

func TestGenerationsMatchPublishedTable(t *testing.T) {
	rows := readTable(t, "testdata/generations.tsv")
	require.Len(t, rows, len(tpu.Generations()))
	for i, g := range tpu.Generations() {
		assert.Equal(t, rows[i], map[string]string{
			"generation": g.Name, "cores": strconv.Itoa(g.CoresPerChip), "devices": strconv.Itoa(g.DevicesPerChip),
			"counts":  map[bool]string{true: "cores", false: "chips"}[g.TypeCountsCores],
			"hbm_gib": strconv.FormatInt(g.HBMBytes>>30, 10), "hbm_gbps": fmt.Sprint(g.HBMBandwidth / 1e9),
			"peak_tflops": fmt.Sprint(g.PeakFLOPS / 1e12), "host_chips": strconv.Itoa(g.ChipsPerHost),
			"max_host_chips": strconv.Itoa(g.MaxChipsPerHost), "pod_chips": strconv.Itoa(g.MaxChips),
		})
	}
}

func TestGenerationOfKind(t *testing.T) {
	paths, err := filepath.Glob("testdata/topologies/*.json")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		var slice struct{ Name, Kind string }
		require.NoError(t, json.Unmarshal(data, &slice))
		name := slice.Name[strings.LastIndex(slice.Name, " ")+1:]
		name, _, _ = strings.Cut(name, ":")
		g, ok := tpu.GenerationForDeviceKind(slice.Kind)
		require.True(t, ok, slice.Kind)
		assert.Equal(t, name, g.Name, "%s of %s", slice.Kind, path)
		seen[g.Name] = true
	}
	assert.Len(t, seen, len(tpu.Generations()))
	for _, kind := range []string{"cpu", "v5e", "TPU v9", ""} {
		_, ok := tpu.GenerationForDeviceKind(kind)
		assert.False(t, ok, kind)
	}
}
