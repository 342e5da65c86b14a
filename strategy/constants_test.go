package strategy_test

import (
	"context"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
)

const tableRows = 1 << 19 // 2 MiB of int32

// tableOf returns a tensor of different numbers, and their sum.
func tableOf(first int32) (table *tensors.Tensor, sum int64) {
	values := make([]int32, tableRows)
	for i := range values {
		values[i] = first + int32(i*7)%tableRows
		sum += int64(values[i])
	}
	return tensors.FromFlatDataAndDimensions(values, tableRows), sum
}

func sumOf(x *graph.Node) *graph.Node { return graph.ReduceAllSum(graph.ConvertDType(x, dtypes.Int64)) }

// A large tensor that a step closes over is an argument of the program: the text is small, wherever
// the step meets the tensor, and the results are right in every run.
func TestLargeConstantsAreArguments(t *testing.T) {
	ctx := context.Background()
	table, want := tableOf(3)
	devices := 1
	steps := map[string]func(in *graph.Node) *graph.Node{
		"used twice": func(in *graph.Node) *graph.Node {
			g := in.Graph()
			return graph.DivScalar(graph.Add(sumOf(graph.ConstTensor(g, table)), sumOf(graph.ConstTensor(g, table))), 2)
		},
		"gathered": func(in *graph.Node) *graph.Node {
			at := graph.Iota(in.Graph(), shapes.Make(dtypes.Int32, tableRows), 0)
			return sumOf(graph.Gather(graph.ConstTensor(in.Graph(), table), graph.InsertAxes(at, -1)))
		},
		"split": func(in *graph.Node) *graph.Node {
			x := graph.ConstTensor(in.Graph(), table)
			if devices > 1 {
				x = logical.Split(x, devices)
			}
			return sumOf(x)
		},
		"met first in a loop body": func(in *graph.Node) *graph.Node {
			g := in.Graph()
			condition := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
				i, _ := graph.Parameter(g, "i", shapes.Make(dtypes.Int32)), graph.Parameter(g, "s", shapes.Make(dtypes.Int64))
				return []*graph.Node{graph.LessThan(i, graph.Const(g, int32(3)))}
			})
			body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
				i, s := graph.Parameter(g, "i", shapes.Make(dtypes.Int32)), graph.Parameter(g, "s", shapes.Make(dtypes.Int64))
				return []*graph.Node{graph.AddScalar(i, 1), graph.Add(s, sumOf(graph.ConstTensor(g, table)))}
			})
			return graph.DivScalar(graph.While(condition, body, graph.Const(g, int32(0)), graph.Const(g, int64(0)))[1], 3)
		},
		"in a block that is computed again": func(in *graph.Node) *graph.Node {
			x := graph.ConvertDType(in, dtypes.Float64)
			loss := remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node {
				return graph.Mul(x, graph.ConvertDType(sumOf(graph.ConstTensor(x.Graph(), table)), dtypes.Float64))
			})
			return graph.ConvertDType(graph.Gradient(loss, x)[0], dtypes.Int64)
		},
	}
	strategytest.OnMeshes(t, [][2]int{{1, 1}, {4, 1}, {2, 2}}, func(t *testing.T, s *strategy.TPUStrategy) {
		devices = s.NumLogicalDevices()
		for name, step := range steps {
			f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return []*graph.Node{step(in[0])} }, strategy.FunctionOptions{Name: name})
			c, err := f.Compiled(ctx, int32(1))
			require.NoError(t, err, name)
			assert.Less(t, len(c.Module.Text), 100_000, "%s: bytes of text", name)
			for range 2 {
				out, err := f.Run(ctx, int32(1))
				require.NoError(t, err, name)
				all, err := s.LocalResults(ctx, out[0])
				require.NoError(t, err)
				for _, got := range all {
					assert.Equal(t, want, got.Value(), name)
				}
				require.NoError(t, out[0].Close())
			}
		}
		assert.Empty(t, s.DistributedVariables(), "a constant is no variable of the user")
	})
}

// Programs over different values have different texts, which processes compare. A constant below the
// limit, and one whose elements are equal, stay in the text.
func TestTheTextOfAProgramDependsOnItsConstants(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	text := func(x *tensors.Tensor) (string, int) {
		c, err := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(in[0], sumOf(graph.ConstTensor(in[0].Graph(), x)))}
		}, strategy.FunctionOptions{}).Compiled(context.Background(), int64(1))
		require.NoError(t, err)
		return string(c.Module.Text), len(c.Module.Arguments)
	}
	one, _ := tableOf(0)
	other, _ := tableOf(1)
	a, arguments := text(one)
	assert.Equal(t, 2, arguments)
	same, _ := tableOf(0)
	again, _ := text(same)
	assert.Equal(t, a, again)
	b, _ := text(other)
	assert.NotEqual(t, a, b)
	small := make([]int32, tableRows/4)
	small[0] = 1
	for _, x := range []*tensors.Tensor{tensors.FromFlatDataAndDimensions(small[:len(small)/2], len(small)/2), tensors.FromFlatDataAndDimensions(make([]int32, tableRows), tableRows)} {
		_, arguments = text(x)
		assert.Equal(t, 1, arguments)
	}
}
