package spmd_test

import (
	"strings"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

func TestPartsHaveOneSizeAndMakeTheWhole(t *testing.T) {
	o := spmd.ReplicaShard{Dim: 1, Size: 10}
	assert.Equal(t, []int{3, 3}, o.ShardDims([]int{3, 10}, 4))
	assert.Equal(t, []int{3, 10}, o.UnshardedDims([]int{3, 3}))
	assert.Equal(t, "dimension 1 of 10 over the replicas", o.String())
	assert.Equal(t, "not sharded over the replicas", spmd.ReplicaShard{}.String())
	assert.Equal(t, []int{3, 10}, spmd.ReplicaShard{}.ShardDims([]int{3, 10}, 4))
}

// TestAParameterInPartsIsGatheredWhereItIsRead checks the text of a step that reads one sharded
// argument in full, and the replica's shard of another.
func TestAParameterInPartsIsGatheredWhereItIsRead(t *testing.T) {
	o := spmd.ReplicaShard{Dim: 0, Size: 6}
	for _, c := range []struct {
		opts                   spmd.Options
		global, shard          []int
		gathers, regions, cuts int
	}{
		{spmd.Options{Replicas: 4, AllowReplicaProgram: true}, []int{8, 2}, []int{2, 2}, 1, 0, 1},
		{spmd.Options{Replicas: 2, LogicalDevices: 2}, []int{6, 2}, []int{3, 1}, 1, 2, 0},
	} {
		split := logical.SplitInto(1, max(c.opts.LogicalDevices, 1))
		sig := spmd.Signature{
			Arguments: []spmd.Tensor{{Name: "w", ReplicaShard: o, Annotation: split, Donated: true}, {Name: "v", ReplicaShard: o,
				Annotation: split}, {Name: "x"}},
			Results: []spmd.Tensor{{Name: "w", ReplicaShard: o, Annotation: split}, {Name: "y"}},
		}
		m := build(t, c.opts, sig, func(g *graph.Graph) []*graph.Node {
			w, v, x := param(g, "w", 6, 2), param(g, "v", 6, 2), param(g, "x", 6)
			mine := graph.Add(spmd.ParameterShard(w, o), spmd.ParameterShard(v, o))
			spmd.GatherShards(mine, o, split) // not read
			return []*graph.Node{mine, graph.Dot(x, w).Product()}
		})
		text := string(m.Text)
		assert.Equal(t, c.global, m.Arguments[0].GlobalDims)
		assert.Equal(t, c.shard, m.Arguments[0].ShardDims)
		assert.Equal(t, c.shard, m.Results[0].ShardDims)
		assert.Equal(t, c.gathers, strings.Count(text, "stablehlo.all_gather"), text)
		assert.Equal(t, c.regions, strings.Count(text, "sdy.manual_computation"), text)
		assert.Equal(t, c.cuts, strings.Count(text, "stablehlo.slice"), text)
	}
}

func TestPartsThatDoNotFitAreRefused(t *testing.T) {
	opts := spmd.Options{Replicas: 2, LogicalDevices: 2}
	for name, c := range map[string]struct {
		tensor spmd.Tensor
		dims   []int
	}{
		"a dimension that is split": {spmd.Tensor{ReplicaShard: spmd.ReplicaShard{Dim: 1, Size: 8},
			Annotation: logical.SplitInto(1, 2)}, []int{4, 8}},
		"a dimension that is not there": {spmd.Tensor{ReplicaShard: spmd.ReplicaShard{Dim: 2, Size: 8}}, []int{4, 8}},
		"another size":                  {spmd.Tensor{ReplicaShard: spmd.ReplicaShard{Dim: 1, Size: 6}}, []int{4, 8}},
		"of each replica": {spmd.Tensor{ReplicaShard: spmd.ReplicaShard{Dim: 1, Size: 8}, PerReplica: true},
			[]int{4, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			tr := spmd.NewTrace(opts)
			g := graph.NewGraph(tr, "step")
			require.NoError(t, g.Compile(graph.Neg(param(g, "w", c.dims...))))
			c.tensor.Name = "w"
			_, err := tr.Module(g, spmd.Signature{Arguments: []spmd.Tensor{c.tensor}, Results: []spmd.Tensor{{Name: "y"}}})
			assert.ErrorContains(t, err, `argument "w"`)
			assert.ErrorContains(t, err,
				"shard a dimension that is not split over the logical devices, and return results as shards")
		})
	}
	t.Run("a whole result", func(t *testing.T) {
		tr := spmd.NewTrace(opts)
		g := graph.NewGraph(tr, "step")
		require.NoError(t, g.Compile(graph.Neg(param(g, "w", 4))))
		_, err := tr.Module(g, spmd.Signature{Arguments: []spmd.Tensor{{Name: "w"}},
			Results: []spmd.Tensor{{Name: "y", ReplicaShard: spmd.ReplicaShard{Size: 4}}}})
		assert.ErrorContains(t, err, `result "y"`)
	})
	o := spmd.ReplicaShard{Dim: 0, Size: 5}
	for name, call := range map[string]func(x *graph.Node){
		"whole":        func(x *graph.Node) { spmd.GatherShards(x, o, logical.Annotation{}) },
		"scatter_part": func(x *graph.Node) { spmd.ReduceScatterShard(x, o, logical.Annotation{}) },
		"own_part":     func(x *graph.Node) { spmd.SliceShard(x, o) },
		"part_of":      func(x *graph.Node) { spmd.ParameterShard(x, o) },
		"no parameter": func(x *graph.Node) { spmd.ParameterShard(graph.Neg(x), spmd.ReplicaShard{Size: 4}) },
		"no dimension": func(x *graph.Node) { spmd.SliceShard(x, spmd.ReplicaShard{Dim: 3, Size: 4}) },
	} {
		g := graph.NewGraph(spmd.NewTrace(opts), "step")
		assert.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(caught(func() { call(param(g, "w", 4)) })), name)
	}
}
