package rematerialization_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/rematerialization"
)

func TestRecomputedNodes(t *testing.T) {
	host, err := gobackend.New("")
	require.NoError(t, err)
	defer host.Finalize()
	g := graph.NewGraph(host, "checkpoints")
	defer g.Finalize()
	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 2))
	assert.False(t, rematerialization.IsRecomputed(x))
	assert.Same(t, x, rematerialization.CheckpointLike(x, x))
	in := x.Checkpoint()
	y := graph.Tanh(in)
	assert.True(t, rematerialization.IsRecomputed(in), "GoMLX keeps elsewhere what is computed again")
	assert.True(t, rematerialization.IsRecomputed(y))
	assert.False(t, rematerialization.IsRecomputed(y.StopCheckpoint()))
	assert.NotSame(t, y, rematerialization.CheckpointLike(in, y))
	all, any := rematerialization.StopCheckpoints([]*graph.Node{x, y})
	assert.True(t, any)
	assert.Same(t, x, all[0])
	assert.False(t, rematerialization.IsRecomputed(all[1]))
}
