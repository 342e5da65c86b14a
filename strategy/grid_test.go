package strategy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// XLA's partitioner ends the process for some of these unless they are written for it.
func TestGathersAndScattersOfTensorsThatAreSplitInAGrid(t *testing.T) {
	ctx := context.Background()
	table := make([][]float32, 8)
	for i := range table {
		table[i] = []float32{float32(i), float32(i * i), -float32(i), 0.5}
	}
	at := [][]int32{{0}, {3}, {99}, {-4}, {1}, {1}, {2}, {3}}
	ops := map[string]func(x *graph.Node) *graph.Node{
		"gather": func(x *graph.Node) *graph.Node { return graph.Gather(x, graph.Const(x.Graph(), at), false) },
		"scatter sum": func(x *graph.Node) *graph.Node {
			return graph.ScatterSum(x, graph.Const(x.Graph(), [][]int32{{1}, {2}, {1}}), graph.Slice(x, graph.AxisRange(2, 5)), false, false)
		},
		"scatter max": func(x *graph.Node) *graph.Node {
			return graph.ScatterMax(x, graph.Const(x.Graph(), [][]int32{{3}, {1}}), graph.Slice(x, graph.AxisRange(0, 2)), false, false)
		},
		"gradient": func(x *graph.Node) *graph.Node {
			rows := graph.Gather(x, graph.Const(x.Graph(), at), false)
			return graph.Gradient(graph.ReduceAllSum(graph.Mul(rows, rows)), x)[0]
		},
	}
	run := func(op func(x *graph.Node) *graph.Node, replicas, p int, split ...[]int) []any {
		s := strategytest.New(t, replicas, p)
		results, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			x := in[0]
			if len(split) > 0 {
				x = logical.Split(x, split[0]...)
			}
			x = op(x)
			if len(split) > 1 {
				x = logical.Split(x, split[1]...)
			}
			return []*graph.Node{x}
		}, strategy.FunctionOptions{}).Run(ctx, table)
		require.NoError(t, err)
		all, err := s.LocalResults(ctx, results[0])
		require.NoError(t, err)
		var values []any
		for _, x := range all {
			values = append(values, x.Value())
		}
		require.NoError(t, s.Close())
		return values
	}
	for name, op := range ops {
		want := run(op, 1, 1)[0]
		for _, in := range [][]int{{2, 2}, {4, 1}, {1, 4}} {
			for _, out := range [][]int{nil, {2, 2}, {4, 1}, {1, 4}} {
				t.Run(fmt.Sprint(name, in, out), func(t *testing.T) {
					splits := [][]int{in}
					if out != nil {
						splits = append(splits, out)
					}
					for _, got := range run(op, 2, 4, splits...) {
						assert.Equal(t, want, got)
					}
				})
			}
		}
	}
}
