package tpu_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/tpu"
)

func TestGenerationsHaveThePublishedFigures(t *testing.T) {
	rows := readTable(t, "testdata/generations.tsv")
	require.Len(t, rows, len(tpu.Generations()))
	for i, g := range tpu.Generations() {
		assert.Equal(t, rows[i], map[string]string{
			"generation": g.Name, "cores": strconv.Itoa(g.CoresPerChip), "devices": strconv.Itoa(g.DevicesPerChip),
			"counts":  map[bool]string{true: "cores", false: "chips"}[g.CountsCores],
			"hbm_gib": strconv.FormatInt(g.HBMBytes>>30, 10), "hbm_gbps": fmt.Sprint(g.HBMBandwidth / 1e9),
			"peak_tflops": fmt.Sprint(g.PeakFLOPS / 1e12), "host_chips": strconv.Itoa(g.ChipsPerHost),
			"max_host_chips": strconv.Itoa(g.MaxChipsPerHost), "pod_chips": strconv.Itoa(g.MaxChips),
		})
	}
}
