package system_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

var update = flag.Bool("update", false, "write the golden topologies anew")

// goldenSlices lists the slices whose topologies are stored in tpu/testdata/topologies.
var goldenSlices = []string{
	"v2-8", "v2:4x4", "v3-8", "v3-32", "v4-8", "v4:2x2x4", "v4-128",
	"v5litepod-1", "v5litepod-4", "v5litepod-8", "v5e:4x4", "v5litepod-256", "2x v5litepod-16",
	"v5p-8", "v5p:2x2x2", "v5p-128", "v5p:16x16x16", "v6e-8", "v6e-256", "tpu7x-8", "tpu7x:4x4x4",
}

// goldenTopology is the stored form of a topology.
type goldenTopology struct {
	system.SliceInfo
	Mesh []int `json:"mesh"`
	// Tasks lists the devices of each task as id, x, y, z and core.
	Tasks [][][5]int `json:"tasks"`
}

func newGoldenTopology(s *system.Slice) goldenTopology {
	t := s.Topology()
	mesh := t.MeshShape()
	g := goldenTopology{SliceInfo: s.Info(), Mesh: mesh[:]}
	g.Plugin = "" // the version changes with each build
	ids := t.DeviceIDs()
	for task, coords := range t.DeviceCoordinates() {
		var row [][5]int
		for d, c := range coords {
			row = append(row, [5]int{ids[task][d], c[0], c[1], c[2], c[3]})
		}
		g.Tasks = append(g.Tasks, row)
	}
	return g
}

// encode returns the JSON form with one task per line.
func (g goldenTopology) encode(t *testing.T) []byte {
	t.Helper()
	tasks := g.Tasks
	g.Tasks = nil
	head, err := json.MarshalIndent(g, "", " ")
	require.NoError(t, err)
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(head, []byte("null\n}")))
	b.WriteString("[\n")
	for i, task := range tasks {
		line, err := json.Marshal(task)
		require.NoError(t, err)
		b.Write(line)
		if i < len(tasks)-1 {
			b.WriteByte(',')
		}
		b.WriteByte('\n')
	}
	b.WriteString("]}\n")
	return b.Bytes()
}

func goldenPath(name string) string {
	file := strings.NewReplacer(":", "_", " ", "_").Replace(name) + ".json"
	return filepath.Join("..", "testdata", "topologies", file)
}

func TestDescribeMatchesGoldenTopologies(t *testing.T) {
	if !*update && !runInChild(t) {
		return
	}
	for _, name := range goldenSlices {
		s, err := system.Describe(context.Background(), name, system.DescribeOptions{Plugin: plugintest.Libtpu(t)})
		require.NoError(t, err, name)
		got := newGoldenTopology(s).encode(t)
		if *update {
			require.NoError(t, os.MkdirAll(filepath.Dir(goldenPath(name)), 0o755))
			require.NoError(t, os.WriteFile(goldenPath(name), got, 0o644))
		}
		want, err := os.ReadFile(goldenPath(name))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), name)
		again, err := system.Describe(context.Background(), s.Info().Name,
			system.DescribeOptions{Plugin: plugintest.Libtpu(t)})
		require.NoError(t, err)
		assert.True(t, again.Topology().Equal(s.Topology()), "%s by its canonical name", name)
		one, err := s.Description().Fingerprint()
		require.NoError(t, err)
		two, err := again.Description().Fingerprint()
		require.NoError(t, err)
		assert.Equal(t, one, two)
		require.NoError(t, again.Close())
		require.NoError(t, s.Close())
		require.NoError(t, s.Close(), "a second Close answers as the first")
	}
}

func TestDescribeRejectsInvalidNames(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{
		"", "v99-8", "v5e", "v5e:", "v5e:0x4", "v5e:4x4x4x4", "v5e:-1x4", "v5p:99999x99999x99999", "v5litepod-7",
		"v5litepod-99999",
		"v5e:3x3", "v5p:3x4x4", "v4-12", "v5p:1000x1000x1000", "9999x v5e-256", "2x v5e:3x3",
		"0x v5e-8", "99999x v5e-8", "2x", "2x 2x v5e-8", "v5e:4×4", "v5e-8\x00", strings.Repeat("v5e-8", 1000),
	} {
		_, err := system.Describe(ctx, name, system.DescribeOptions{Plugin: "/nowhere/libtpu.so"})
		var a *tpu.AcceleratorError
		require.ErrorAs(t, err, &a, "name %.40q", name)
		require.Less(t, len(err.Error()), 500)
	}
	_, err := system.Describe(ctx, "v5e:4x4", system.DescribeOptions{Plugin: "/nowhere/libtpu.so"})
	var find *pjrt.FindError
	require.ErrorAs(t, err, &find)
	_, err = system.Describe(ctx, "2x v5e:4x4", system.DescribeOptions{Slices: 3})
	require.ErrorContains(t, err, "use only one of them")
	_, err = system.Describe(ctx, "v5e:16x16", system.DescribeOptions{Slices: 1 << 40})
	require.ErrorContains(t, err, "exceed the limit of")
	_, err = system.Describe(ctx, "v5e:4x4", system.DescribeOptions{Slices: -1})
	require.ErrorContains(t, err, "positive")
}

func TestDescribeReturnsErrorsOfLibtpu(t *testing.T) {
	if !runInChild(t) {
		return
	}
	var pe *pjrt.Error
	for _, opts := range []system.DescribeOptions{
		{Options: map[string]any{"bogus": 1}}, {Options: map[string]any{"wrap": "yes"}},
		{Options: map[string]any{"chips_per_host_bounds": []int64{3, 3, 1}}},
	} {
		opts.Plugin = plugintest.Libtpu(t)
		_, err := system.Describe(context.Background(), "v5e:4x4", opts)
		require.ErrorAs(t, err, &pe, "%v", opts.Options)
	}
	s, err := system.Describe(context.Background(), "v5e:4x4", system.DescribeOptions{Plugin: plugintest.Libtpu(t),
		Wrap: &[3]bool{true, false, false}})
	require.NoError(t, err)
	assert.Equal(t, [3]bool{true, false, false}, s.Info().Wrap)
	require.NoError(t, s.Close())
	_, err = s.Compile(context.Background(), pjrt.Program{Code: []byte("module {}"), Trusted: true}, pjrt.CompileOptions{})
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

func TestCloudWrap(t *testing.T) {
	for name, want := range map[string][3]bool{
		"v4:4x4x4": {true, true, true}, "v4:2x2x4": {}, "v5p:4x4x8": {true, true, true}, "v5p:2x4x4": {},
		"v5e:16x16": {true, true, false}, "v5e:8x16": {false, true, false}, "v5e:8x8": {}, "v3:16x16": {},
		"v6e-256": {true, true, false}, "v3:32x32": {true, true, false},
	} {
		_, a, err := system.ParseSlices(name)
		require.NoError(t, err)
		assert.Equal(t, want, system.CloudWraparound(a), name)
	}
}

func TestParseSlicesErrorIsOneLine(t *testing.T) {
	for _, name := range []string{"v5litepod-16\n", "\nv5litepod-16", "2x\nv5litepod-16", "v5litepod-16\u2028",
		"2x v5e-16\x1b[31m", "\xff"} {
		_, _, err := system.ParseSlices(name)
		var wrong *tpu.AcceleratorError
		require.ErrorAs(t, err, &wrong, "%q", name)
		assert.NotContains(t, err.Error(), "\n")
		assert.NotContains(t, err.Error(), "\x1b")
	}
	count, a, err := system.ParseSlices(" 2 x v5litepod-16 ")
	require.NoError(t, err)
	assert.Equal(t, "v5litepod-16", a.Type())
	assert.Equal(t, 2, count)
}

func FuzzParseSlices(f *testing.F) {
	for _, name := range append(goldenSlices, "2x", "x v5e-8", "9999x v2-8", "0x v2-8", "2 x v5e:4x4") {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		slices, a, err := system.ParseSlices(name)
		if err != nil {
			return
		}
		if slices < 1 || a.Chips() < 1 {
			t.Fatalf("%q: %d slices of %v", name, slices, a)
		}
		again, b, err := system.ParseSlices(fmt.Sprintf("%dx %s", slices, a))
		if err != nil || again != slices || b != a {
			t.Fatalf("%q reads back as %d, %v, %v", name, again, b, err)
		}
	})
}

// In each slice of up to 512 chips, the chips of a host are the block of the published table, at a
// multiple of the block's sides.
func TestHostBlocksOfLibtpuMatchTable(t *testing.T) {
	if !runInChild(t) {
		return
	}
	table, err := os.ReadFile(filepath.Join("..", "testdata", "slices.tsv"))
	require.NoError(t, err)
	seen := map[string]int{}
	for line := range strings.Lines(string(table)) {
		cells := strings.Split(strings.TrimSpace(line), "\t")
		if len(cells) != 5 || !strings.Contains(cells[1], ":") {
			continue
		}
		var block [3]int
		_, err := fmt.Sscanf(cells[2], "%dx%dx%d", &block[0], &block[1], &block[2])
		require.NoError(t, err)
		a, err := tpu.ParseAccelerator(cells[1])
		require.NoError(t, err)
		if chips := block[0] * block[1] * block[2]; a.Chips() > 512 || a.Chips()/chips != a.Hosts() {
			continue // the slice can also be on one host
		}
		s, err := system.Describe(t.Context(), cells[1], system.DescribeOptions{Plugin: plugintest.Libtpu(t)})
		require.NoError(t, err, cells[0])
		for host, devices := range s.Topology().DeviceCoordinates() {
			low, high := devices[0], devices[0]
			for _, at := range devices {
				for i := range block {
					low[i], high[i] = min(low[i], at[i]), max(high[i], at[i])
				}
			}
			for i, side := range block {
				require.Equal(t, side, high[i]-low[i]+1, "%s, host %d, side %d", cells[0], host, i)
				require.Zero(t, low[i]%side, "%s, host %d, side %d", cells[0], host, i)
			}
		}
		require.NoError(t, s.Close())
		seen[a.Generation().Name]++
	}
	assert.Greater(t, seen["tpu7x"], 5, "%v", seen)
	assert.Greater(t, seen["v5p"], 5, "%v", seen)
	assert.Greater(t, seen["v6e"], 3, "%v", seen)
}
