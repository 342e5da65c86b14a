package sharding_test

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/sharding"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got)
}

func TestAuditFindsLargeCopies(t *testing.T) {
	m := mesh2x4(t)
	tensors := []sharding.Tensor{
		{Name: "embedding", Shape: []int{32000, 512}, ElementBytes: 4, Spec: sharding.P(nil, nil)},
		{Name: "dense/weights", Shape: []int{512, 2048}, ElementBytes: 4, Spec: sharding.P(nil, "logical")},
		{Name: "odd", Shape: []int{1023, 1023}, ElementBytes: 4, Spec: sharding.P(nil, nil)},
		{Name: "dense/bias", Shape: []int{2048}, ElementBytes: 4, Spec: sharding.P(nil)},
		{Name: "batch", Shape: []int{64, 512}, ElementBytes: 4, Spec: sharding.P([]string{"replica", "logical"}, nil)},
	}
	report, err := sharding.Audit(m, tensors, sharding.AuditOptions{})
	require.NoError(t, err)
	var names []string
	for _, f := range report.Findings {
		names = append(names, f.Name)
	}
	assert.Equal(t, []string{"embedding", "odd", "dense/weights"}, names)
	assert.Equal(t, "replica,-", report.Findings[0].Suggestion)
	assert.Empty(t, report.Findings[1].Suggestion)
	assert.Equal(t, []string{"replica"}, report.Findings[2].Axes)
	assert.EqualValues(t, 512*2048*4/4/2, report.Findings[2].SavedBytes)
	for i, entry := range report.Entries {
		want, err := sharding.BytesPerDevice(m, tensors[i].Spec, tensors[i].Shape, tensors[i].ElementBytes)
		require.NoError(t, err)
		assert.Equal(t, want, entry.BytesPerDevice)
	}
	var table, text strings.Builder
	require.NoError(t, report.WriteTable(&table))
	checkGolden(t, "audit.txt", table.String())
	require.NoError(t, report.WriteJSON(&text))
	checkGolden(t, "audit.json", text.String())
	var back sharding.Report
	require.NoError(t, json.Unmarshal([]byte(text.String()), &back))
	assert.Equal(t, report, back)

	meant, err := sharding.Audit(m, tensors, sharding.AuditOptions{CopyAxes: []string{"replica"}})
	require.NoError(t, err)
	assert.Equal(t, sharding.Finding{Name: "embedding", SavedBytes: 32000 * 512 * 4 / 4 * 3, Axes: []string{"logical"}, Suggestion: "logical,-"}, meant.Findings[0])
	assert.Len(t, meant.Findings, 2)
	none, err := sharding.Audit(m, tensors, sharding.AuditOptions{LargeBytes: -1})
	require.NoError(t, err)
	assert.Empty(t, none.Findings)
}

func TestAuditReportsEveryBadTensor(t *testing.T) {
	_, err := sharding.Audit(mesh2x4(t), []sharding.Tensor{
		{Name: "a", Shape: []int{3}, ElementBytes: 4, Spec: sharding.P("logical")},
		{Name: "b", Shape: []int{4}, ElementBytes: 0, Spec: sharding.P("logical")},
		{Name: "c", Shape: []int{4}, ElementBytes: 4, Spec: sharding.P("nowhere")},
	}, sharding.AuditOptions{})
	assert.ErrorContains(t, err, `tensor "a": dimension 0: size 3`)
	assert.ErrorContains(t, err, `tensor "b"`)
	assert.ErrorContains(t, err, `tensor "c"`)
	_, err = sharding.Audit(mesh2x4(t), []sharding.Tensor{
		{Name: "a", Shape: []int{math.MaxInt}, ElementBytes: 1, Spec: sharding.P(nil)},
		{Name: "b", Shape: []int{math.MaxInt}, ElementBytes: 1, Spec: sharding.P(nil)},
	}, sharding.AuditOptions{})
	assert.ErrorContains(t, err, "int64")
}
