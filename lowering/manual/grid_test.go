//go:build cgo

package manual_test

import (
	"fmt"
	"testing"

	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/manual"
	"github.com/tpustrategy/tpustrategy/sharding"
	"github.com/tpustrategy/tpustrategy/strategy"
)

// The gathered tensor is split over the axes over which the region is not manual. XLA's partitioner
// crashes for some of these gathers unless they are lowered differently.
func TestGatherOfTensorSplitOverOtherAxes(t *testing.T) {
	sys := plugintest.System(t, 8)
	table, at := make([][]float32, 8), [][]int32{{0}, {3}, {7}, {4}, {1}, {1}, {2}, {3}}
	for i := range table {
		table[i] = []float32{float32(i), float32(i * i), -float32(i), 0.5}
	}
	ops := map[string]func(x, at *graph.Node) *graph.Node{
		"gather": func(x, at *graph.Node) *graph.Node { return graph.Gather(x, at, false) },
		"gradient": func(x, at *graph.Node) *graph.Node {
			rows := graph.Gather(x, at, false)
			return graph.Gradient(graph.ReduceAllSum(graph.Mul(rows, rows)), x)[0]
		},
	}
	run := func(s *strategy.TPUStrategy, step func(in []*graph.Node) []*graph.Node) any {
		results, err := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return step(in) },
			strategy.FunctionOptions{}).Run(t.Context(), table, at)
		require.NoError(t, err)
		return strategytest.OK(results[0].Local(t.Context(), 0)).Value()
	}
	one := strategytest.On(t, sys, strategy.Options{Replicas: 1})
	cube := strategytest.On(t, sys, strategy.Options{Replicas: 1, LogicalAxes: strategytest.Axes("expert", "model",
		"sequence")})
	for name, op := range ops {
		want := run(one, func(in []*graph.Node) []*graph.Node { return []*graph.Node{op(in[0], in[1])} })
		for _, split := range [][]string{{"model", ""}, {"model", "sequence"}, {"sequence", "model"}} {
			for _, out := range [][]string{{"", ""}, {"model", "sequence"}} {
				got := run(cube, func(in []*graph.Node) []*graph.Node {
					arguments := []manual.Arg{manual.In(in[0]), manual.In(in[1])}
					return manual.Region([]string{"expert"}, arguments, []sharding.Spec{sharding.P()},
						func(in []*graph.Node) []*graph.Node {
							y := op(logical.SplitOver(in[0], split...), logical.SplitOver(in[1], "model", ""))
							return []*graph.Node{logical.SplitOver(y, out...)}
						})
				})
				assert.Equal(t, want, got, fmt.Sprint(name, split, out))
			}
		}
	}
}
