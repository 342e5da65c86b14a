package report

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/units"
	"github.com/tpustrategy/tpustrategy/report/memory"
)

func TestTheTextSaysEverything(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, sample().WriteText(&b))
	golden := filepath.Join("testdata", "sample.txt")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(want), b.String())
}

func TestTheTextOfABareReport(t *testing.T) {
	var b bytes.Buffer
	r := &Report{Version: formatVersion, Step: "s", Replicas: 1, LogicalDevices: 1, Memory: Memory{Verdict: Unknown},
		Cost: Cost{FLOPs: -1, BytesAccessed: -1}}
	require.NoError(t, r.WriteText(&b))
	assert.Contains(t, b.String(), "verdict: unknown")
	assert.Contains(t, b.String(), "collectives of one core in one step\n  none")
	full := sample()
	full.Memory.Arguments = 40 << 30
	b.Reset()
	require.NoError(t, full.WriteText(&b))
	assert.Contains(t, b.String(), "["+strings.Repeat("a", barWidth)+"]", "the bar ends at its end")
}

func TestTheTextMovesNoCursor(t *testing.T) {
	r := sample()
	r.Step, r.Notes = "step\x1b[2J", append(r.Notes, "a\rb\u009bc")
	var b bytes.Buffer
	require.NoError(t, r.WriteText(&b))
	assert.Contains(t, b.String(), "step\ufffd[2J on v5e:2x2")
	assert.Contains(t, b.String(), "note: a\ufffdb\ufffdc\n")
}

func TestUnits(t *testing.T) {
	assert.Equal(t, "1.50 MiB", units.Bytes(3<<19))
	assert.Equal(t, "2.00 TiB", units.Bytes(2<<40))
	assert.Equal(t, "12 B", units.Bytes(12))
	assert.Equal(t, "197.00 TFLOP/s", units.SI(197e12, "FLOP/s"))
	assert.Equal(t, "3 FLOP", units.SI(3, "FLOP"))
	assert.Equal(t, "1.25 ms", units.Seconds(0.00125))
	assert.Equal(t, "3.0 us", units.Seconds(3e-6))
	assert.Equal(t, "2.00 s", units.Seconds(2))
}

func TestTheTextSaysWhatReplicasHave(t *testing.T) {
	for want, x := range map[string]memory.Tensor{
		"unsharded, mirrored":        {Annotation: "none"},
		"-,logical, mirrored":        {Annotation: "-,logical"},
		"replicate, mirrored":        {Annotation: "replicate"},
		"replica,logical":            {Annotation: "replica,logical"},
		"logical+replica,-":          {Annotation: "logical+replica,-"},
		"over({replica}, {logical})": {Annotation: "over({replica}, {logical})"}, // the previous format
		"unsharded, per replica":     {Annotation: "none", PerReplica: true},
		"dimension 0 over 4 replicas": {Annotation: "none", ReplicaShard: &memory.ReplicaShard{Dim: 0, Replicas: 4,
			Size: 64}},
		"1,2, dimension 0 over 4 replicas": {Annotation: "1,2", ReplicaShard: &memory.ReplicaShard{Dim: 0, Replicas: 4,
			Size: 64}},
	} {
		assert.Equal(t, want, layout(x))
	}
}
