//go:build cgo

package spmd_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// A step without logical devices returns the same numbers as R replicas of one partition and as R
// partitions, without and with a loop, and needs no partitioner.
func TestProgramsOfReplicasGiveTheNumbersOfPartitions(t *testing.T) {
	const steps = 3
	step := func(g *graph.Graph) []*graph.Node {
		w, x, s := param(g, "w", 4), param(g, "x", 4), param(g, "s")
		id := graph.ConvertDType(spmd.ReplicaID(g), dtypes.Float32)
		scattered := spmd.ReduceScatter(logical.Assign(logical.Split(x, 1), 0), 0)
		w = graph.Add(w, spmd.AllReduce(graph.Mul(x, id), spmd.Sum))
		return []*graph.Node{w, scattered, graph.Add(s, id), spmd.AllGather(x, 0), spmd.AllReduce(x, spmd.Max)}
	}
	for _, r := range []int{1, 2, 4} {
		for _, n := range []int{0, steps} {
			sig := spmd.Signature{
				Arguments: []spmd.Tensor{{Name: "w", Donated: true}, {Name: "x", PerReplica: true, PerStep: n > 0},
					{Name: "s", PerReplica: true}},
				Results: []spmd.Tensor{{Name: "w"}, {PerReplica: true}, {PerReplica: true}, {}, {}}, Steps: n,
			}
			var want [][]float32
			for _, programs := range []bool{false, true} {
				m := build(t, spmd.Options{Replicas: r, AllowReplicaProgram: programs, Target: lowering.TargetCPU}, sig, step)
				got := run(t, m, []float32{1, 2, 3, 4}, count(max(n, 1)*r*4), count(r))
				if !programs {
					require.Equal(t, []int{1, r}, []int{m.Replicas, m.Partitions})
					want = got
					continue
				}
				require.Equal(t, []int{r, 1}, []int{m.Replicas, m.Partitions})
				assert.Equal(t, want, got, "%d replicas, %d steps", r, n)
				assert.NotContains(t, string(m.Text), "sdy.")
				assert.Contains(t, string(m.Text), fmt.Sprintf("mhlo.num_replicas = %d", r))
			}
		}
	}
}

// TestProgramsOfLogicalDevicesAreOneProgram devices need partitions.
func TestProgramsOfLogicalDevicesAreOneProgram(t *testing.T) {
	m := build(t, spmd.Options{Replicas: 2, LogicalDevices: 2, AllowReplicaProgram: true, Target: lowering.TargetCPU},
		spmd.Signature{Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 1)},
		func(g *graph.Graph) []*graph.Node { return []*graph.Node{graph.AddScalar(param(g, "x", 4), 1)} })
	assert.Equal(t, []int{1, 4}, []int{m.Replicas, m.Partitions})
}
