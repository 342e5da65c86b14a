package tpu_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/tpu"
)

// readTable reads a file of tab-separated values. The first line contains the column names.
func readTable(t *testing.T, path string) []map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	var names []string
	var rows []map[string]string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if names == nil {
			names = fields
			continue
		}
		require.Len(t, fields, len(names), line)
		row := map[string]string{}
		for i, name := range names {
			row[name] = fields[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func TestParseAcceleratorAcceptsAllCloudSlices(t *testing.T) {
	rows := readTable(t, "testdata/slices.tsv")
	require.Len(t, rows, 223)
	for _, row := range rows {
		a, err := tpu.ParseAccelerator(row["type"])
		if !assert.NoError(t, err) {
			continue
		}
		assert.Equal(t, row["topology"], a.String(), row["type"])
		same, err := tpu.ParseAccelerator(row["topology"])
		require.NoError(t, err)
		assert.Equal(t, a, same)
		assert.Equal(t, row["devices"], strconv.Itoa(a.Devices()), row["type"])
		var x, y, z int
		_, err = fmt.Sscanf(row["chips_per_host"], "%dx%dx%d", &x, &y, &z)
		require.NoError(t, err)
		want := max(a.Chips()/(x*y*z), 1)
		if row["type"] == "v5e-8" || row["type"] == "v6e-8" {
			want = 1 // these come on one machine of 8 chips too, which is the default here
		}
		assert.Equal(t, want, a.Hosts(), row["type"])
		if a.Chips() > 1024 {
			continue
		}
		topology, err := a.Topology()
		require.NoError(t, err)
		assert.Equal(t, a.Devices(), topology.NumDevices())
		assert.Equal(t, a.Hosts(), topology.NumTasks())
	}
}

func TestInvalidSizesSuggestNearestTypes(t *testing.T) {
	exists := map[string]bool{}
	for _, row := range readTable(t, "testdata/slices.tsv") {
		exists[row["type"]] = true
	}
	for _, generation := range []string{"v5e", "v5p", "v6e", "tpu7x"} {
		g, _ := tpu.LookupGeneration(generation)
		last := g.MaxChips
		if g.TypeCountsCores {
			last *= g.CoresPerChip
		}
		for n := 1; n <= last+1; n++ {
			name := fmt.Sprintf("%s-%d", generation, n)
			_, err := tpu.ParseAccelerator(name)
			if exists[name] {
				require.NoError(t, err)
				continue
			}
			var bad *tpu.AcceleratorError
			require.ErrorAs(t, err, &bad, name)
			require.NotEmpty(t, bad.Nearest, name)
			for _, near := range bad.Nearest {
				_, err := tpu.ParseAccelerator(near)
				require.NoError(t, err, "%s names %s", name, near)
				require.Contains(t, bad.Hint, near)
			}
		}
	}
	for text, want := range map[string][]string{
		"v5p-300": {"v5p-256", "v5p-384"}, "v5p-17919": {"v5p-13824", "v5p-17920"}, "v5p-17922": {"v5p-17920"},
		"v4-12": {"v4-8", "v4-16"}, "v4-2": {"v4-8"},
		"v5litepod-2": {"v5litepod-1", "v5litepod-4"}, "v6e-512": {"v6e-256"}, "tpu7x-6": {"tpu7x-2", "tpu7x-8"},
		"v2-48": {"v2-32", "v2-64"}, "v4-9": {"v4-8", "v4-16"},
		"v3-99999": {"v3-2048"},
	} {
		_, err := tpu.ParseAccelerator(text)
		var bad *tpu.AcceleratorError
		require.ErrorAs(t, err, &bad, text)
		assert.Equal(t, want, bad.Nearest, "%v", err)
	}
}

func TestInvalidShapesSuggestNearestTopologies(t *testing.T) {
	for text, want := range map[string][]string{
		"v5e:3x3": {"v5e:2x4", "v5e:4x4"}, "v5e:5x5": {"v5e:4x4", "v5e:4x8"}, "v5e:1x3": {"v5e:1x1", "v5e:2x2"},
		"v5e:1x8":   {"v5e:2x2", "v5e:2x4"},
		"v5e:2x128": {"v5e:8x16", "v5e:16x16"}, "v5e:6x6": {"v5e:4x8", "v5e:8x8"}, "v6e:3x5": {"v6e:2x4", "v6e:4x4"},
		"v2:3x3": {"v2:2x4", "v2:4x4"}, "v3:5x2": {"v3:2x4", "v3:4x4"}, "v3:1x64": {"v3:4x8", "v3:8x8"},
		"v4:3x3x3": {"v4:2x2x4", "v4:2x4x4"}, "v4:2x2x3": {"v4:2x2x2", "v4:2x2x4"}, "v4:4x4x6": {"v4:4x4x4", "v4:4x4x8"},
		"v5p:3x4x4": {"v5p:2x4x4", "v5p:4x4x4"}, "v5p:5x5x5": {"v5p:4x4x4", "v5p:4x4x8"}, "v5p:2x2x8": {"v5p:2x2x4",
			"v5p:2x4x4"}, "v5p:1x1x3": {"v5p:2x2x1"},
		"v5p:4x4x5": {"v5p:4x4x4", "v5p:4x4x8"}, "tpu7x:3x3x3": {"tpu7x:2x2x4", "tpu7x:2x4x4"}, "tpu7x:1x1x2": {"tpu7x:1x1x1",
			"tpu7x:2x2x1"},
	} {
		_, err := tpu.ParseAccelerator(text)
		var bad *tpu.AcceleratorError
		if assert.ErrorAs(t, err, &bad, text) {
			assert.Equal(t, want, bad.Nearest, "%v", err)
			assert.ErrorContains(t, err, "no "+strings.Split(text, ":")[0]+" slice has this shape; there are ")
		}
	}
	for _, text := range []string{
		"v5e:1x2", "v5e:1x4", "v5e:4x2", "v5e:8x4", "v5e:2x16", "v6e:16x16", "v2:1x1", "v3:2x8", "v4:1x1x1", "v4:1x2x1",
		"v4:2x4x2", "v4:4x4x1",
		"v4:4x8x12", "v5p:4x4x20", "v5p:12x8x4", "tpu7x:2x1x1",
	} {
		a, err := tpu.ParseAccelerator(text)
		require.NoError(t, err)
		topology, err := a.Topology()
		require.NoError(t, err)
		assert.Equal(t, a.Hosts(), topology.NumTasks(), text)
	}
}
