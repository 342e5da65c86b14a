package sharding_test

import (
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/hangtest"
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

func TestVisualizeMatchesGolden(t *testing.T) {
	m := mesh2x4(t)
	large := mesh(t, sharding.Axis{Name: "x", Size: 64})
	for name, c := range map[string]struct {
		mesh    sharding.Mesh
		spec    sharding.Spec
		shape   []int
		options sharding.VisualizeOptions
	}{
		"scalar":     {m, sharding.P(), []int{}, sharding.VisualizeOptions{}},
		"vector":     {m, sharding.P("logical"), []int{16}, sharding.VisualizeOptions{}},
		"matrix":     {m, sharding.P("replica", "logical"), []int{8, 128}, sharding.VisualizeOptions{}},
		"transposed": {m, sharding.P([]string{"logical", "replica"}, nil), []int{8, 128}, sharding.VisualizeOptions{}},
		"replicated": {m, sharding.P(nil, nil), []int{8, 128}, sharding.VisualizeOptions{}},
		"rank4": {m, sharding.P("replica", nil, nil, "logical"), []int{4, 2, 2, 8},
			sharding.VisualizeOptions{Dims: []int{3, 1}, Indices: []int{3, 0, 1, 0}}},
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

func TestVisualizeRejectsInvalidOptions(t *testing.T) {
	m := mesh2x4(t)
	for name, options := range map[string]sharding.VisualizeOptions{
		"one dim":     {Dims: []int{0}},
		"same dim":    {Dims: []int{1, 1}},
		"beyond rank": {Dims: []int{0, 2}},
		"negative":    {Dims: []int{-1, 0}},
		"at length":   {Indices: []int{0}},
		"max tiles":   {MaxTiles: 1},
	} {
		assert.ErrorContains(t, sharding.Visualize(&strings.Builder{}, m, sharding.P(nil, nil), []int{2, 2}, options),
			"visualize", name)
	}
	err := sharding.Visualize(&strings.Builder{}, m, sharding.P(nil, nil, nil), []int{2, 2, 2},
		sharding.VisualizeOptions{Indices: []int{0, 0, 2}})
	assert.ErrorContains(t, err, "index 2 in dimension 2")
	assert.Error(t, sharding.Visualize(&strings.Builder{}, m, sharding.P("logical"), []int{3},
		sharding.VisualizeOptions{}))
}

// Too many devices are rejected before VisualizeOp loops over them or allocates memory.
func TestVisualizeRejectsTooManyDevices(t *testing.T) {
	op, err := sharding.ParseOpSharding("{replicated}")
	require.NoError(t, err)
	for _, devices := range []int{1e9, 1<<16 + 1, math.MaxInt, -1} {
		var err error
		hangtest.Within(t, func() {
			err = sharding.VisualizeOp(io.Discard, op, []int{8}, devices,
				sharding.VisualizeOptions{})
		})
		var wrong errkind.Error
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
		assert.ErrorContains(t, err, strconv.Itoa(devices))
	}
	hangtest.Within(t, func() {
		require.NoError(t, sharding.VisualizeOp(io.Discard, op, []int{8}, 1<<16, sharding.VisualizeOptions{}))
	})
	large := mesh(t, sharding.Axis{Name: "x", Size: 1 << 20}, sharding.Axis{Name: "y", Size: 1 << 10})
	hangtest.Within(t, func() {
		err = sharding.Visualize(io.Discard, large, sharding.P("x"), []int{1 << 20}, sharding.VisualizeOptions{})
	})
	assert.ErrorContains(t, err, "1073741824")
}
