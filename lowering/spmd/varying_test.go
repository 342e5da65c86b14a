package spmd_test

import (
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

func TestWhatDiffersBetweenReplicasIsFollowed(t *testing.T) {
	for _, replicas := range []int{1, 2} {
		g := graph.NewGraph(spmd.NewTrace(spmd.Options{Replicas: replicas, LogicalDevices: 2}), "step")
		x, w := param(g, "x", 4), param(g, "w", 4)
		choose := func(on bool, then, otherwise *graph.Node) *graph.Node {
			branch := func(y *graph.Node) *graph.Function {
				return graph.NewClosure(g, func(*graph.Graph) []*graph.Node {
					_ = graph.Add(x, x) // not returned
					return []*graph.Node{graph.Neg(y)}
				})
			}
			return graph.If(graph.Const(g, on), branch(then), branch(otherwise))[0]
		}
		count := func(step *graph.Node) *graph.Node {
			state := func(g *graph.Graph) *graph.Node { return graph.Parameter(g, "n", shapes.Make(dtypes.Float32, 4)) }
			cond := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
				return []*graph.Node{graph.LessThan(graph.ReduceAllSum(state(g)), graph.Const(g, float32(9)))}
			})
			body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node { return []*graph.Node{graph.Add(state(g), step)} })
			return graph.While(cond, body, w)[0]
		}
		cases := []struct {
			name string
			node *graph.Node
			want bool
		}{
			{"an argument of a replica", x, true},
			{"a mirrored one", w, false},
			{"an op of mirrored ones", graph.Add(w, w), false},
			{"an op of both", graph.Add(w, x), true},
			{"an all-reduce", spmd.AllReduce(x, spmd.Max), false},
			{"an op after it", graph.Mul(w, spmd.AllReduce(x, spmd.Sum)), false},
			{"an all-gather", spmd.AllGather(x, 0), false},
			{"a reduce-scatter", spmd.ReduceScatter(w, 0), true},
			{"an annotation", logical.Split(w, 2), false},
			{"an annotation of what differs", logical.Assign(x, 1), true},
			{"a region", logical.OnDevice(1, w, graph.Neg), false},
			{"a region of what differs", logical.OnDevice(1, x, graph.Neg), true},
			{"a region's result that is made of mirrored ones", logical.OnDeviceMany(1, []*graph.Node{x, w},
				func(in []*graph.Node) []*graph.Node {
					return []*graph.Node{graph.Neg(in[1])}
				})[0], false},
			{"a branch", choose(true, w, spmd.AllReduce(x, spmd.Sum)), false},
			{"a branch that differs", choose(true, w, x), true},
			{"a loop", count(w), false},
			{"a loop that reads what differs", count(x), true},
			{"a gradient of mirrored ones", graph.Gradient(graph.ReduceAllSum(graph.Mul(w, w)), w)[0], false},
			{"the replica id", spmd.ReplicaID(g), true},
		}
		nodes := make([]*graph.Node, len(cases))
		for i, c := range cases {
			nodes[i] = c.node
		}
		got, err := spmd.ReplicaVarying(nodes, []*graph.Node{x})
		require.NoError(t, err)
		for i, c := range cases {
			assert.Equal(t, c.want && replicas > 1, got[i], "%s on %d replicas", c.name, replicas)
		}
	}
}
