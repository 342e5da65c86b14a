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
	assert.Equal(t, "P(replica, nil)", report.Findings[0].Suggestion)
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
	assert.Equal(t, sharding.Finding{Name: "embedding", SavedBytes: 32000 * 512 * 4 / 4 * 3, Axes: []string{"logical"}, Suggestion: "P(logical, nil)"}, meant.Findings[0])
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

func TestVisualizeDrawsWhoHoldsWhat(t *testing.T) {
	m := mesh2x4(t)
	large := mesh(t, sharding.Axis{Name: "x", Size: 64})
	for name, c := range map[string]struct {
		mesh    sharding.Mesh
		spec    sharding.Spec
		shape   []int
		options sharding.VisualizeOptions
	}{
		"scalar":      {m, sharding.P(), []int{}, sharding.VisualizeOptions{}},
		"vector":      {m, sharding.P("logical"), []int{16}, sharding.VisualizeOptions{}},
		"matrix":      {m, sharding.P("replica", "logical"), []int{8, 128}, sharding.VisualizeOptions{}},
		"transposed":  {m, sharding.P([]string{"logical", "replica"}, nil), []int{8, 128}, sharding.VisualizeOptions{}},
		"replicated":  {m, sharding.P(nil, nil), []int{8, 128}, sharding.VisualizeOptions{}},
		"rank4":       {m, sharding.P("replica", nil, nil, "logical"), []int{4, 2, 2, 8}, sharding.VisualizeOptions{Dims: []int{3, 1}, At: []int{3, 0, 1, 0}}},
		"elided":      {large, sharding.P("x"), []int{64}, sharding.VisualizeOptions{MaxTiles: 4}},
		"zero":        {m, sharding.P("replica", nil), []int{0, 3}, sharding.VisualizeOptions{}},
		"elided_down": {large, sharding.P("x", nil), []int{64, 1}, sharding.VisualizeOptions{MaxTiles: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			require.NoError(t, sharding.Visualize(&b, c.mesh, c.spec, c.shape, c.options))
			checkGolden(t, "visualize_"+name+".txt", b.String())
		})
	}
}

func TestVisualizeOpShowsUnevenTiles(t *testing.T) {
	op, err := sharding.ParseOpSharding("{devices=[2,3,2]<=[12] last_tile_dim_replicate}")
	require.NoError(t, err)
	var b strings.Builder
	require.NoError(t, sharding.VisualizeOp(&b, op, []int{3, 7}, 12, sharding.VisualizeOptions{}))
	checkGolden(t, "visualize_op.txt", b.String())
}

func TestVisualizeRefusesBadOptions(t *testing.T) {
	m := mesh2x4(t)
	for name, options := range map[string]sharding.VisualizeOptions{
		"one dim":     {Dims: []int{0}},
		"same dim":    {Dims: []int{1, 1}},
		"beyond rank": {Dims: []int{0, 2}},
		"negative":    {Dims: []int{-1, 0}},
		"at length":   {At: []int{0}},
		"max tiles":   {MaxTiles: 1},
	} {
		assert.ErrorContains(t, sharding.Visualize(&strings.Builder{}, m, sharding.P(nil, nil), []int{2, 2}, options), "visualize", name)
	}
	err := sharding.Visualize(&strings.Builder{}, m, sharding.P(nil, nil, nil), []int{2, 2, 2}, sharding.VisualizeOptions{At: []int{0, 0, 2}})
	assert.ErrorContains(t, err, "At is 2 in dimension 2")
	assert.Error(t, sharding.Visualize(&strings.Builder{}, m, sharding.P("logical"), []int{3}, sharding.VisualizeOptions{}))
}
