package strategy_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	loops "github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/strategy"
)

const tableRows = 1 << 19 // 2 MiB of int32

// tableOf returns a tensor with different numbers, and their sum.
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
// the step uses the tensor, and the results are correct in each run.
func TestLargeConstantsAreArguments(t *testing.T) {
	ctx := context.Background()
	table, want := tableOf(3)
	floats := make([]float64, tableRows/4) // 1 MiB
	for i := range floats {
		floats[i] = float64(i % 5)
	}
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
		"with a small constant": func(in *graph.Node) *graph.Node {
			g := in.Graph()
			small := graph.Const(g, []int32{1, 2, 3})
			return graph.Sub(graph.Add(sumOf(graph.ConstTensor(g, table)), sumOf(small)), graph.Const(g, int64(6)))
		},
		"used first in a loop body": func(in *graph.Node) *graph.Node {
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
		"in a branch": func(in *graph.Node) *graph.Node {
			g := in.Graph()
			branch := func(times int64) *graph.Function {
				return graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
					return []*graph.Node{graph.MulScalar(sumOf(graph.ConstTensor(g, table)), times)}
				})
			}
			return graph.If(graph.GreaterThan(in, graph.ScalarZero(g, dtypes.Int32)), branch(1), branch(2))[0]
		},
		"in the gradient of a block of remat": func(in *graph.Node) *graph.Node {
			x := graph.ConvertDType(in, dtypes.Float64)
			loss := remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node {
				return graph.Mul(x, graph.ConvertDType(sumOf(graph.ConstTensor(x.Graph(), table)), dtypes.Float64))
			})
			return graph.ConvertDType(graph.Gradient(loss, x)[0], dtypes.Int64)
		},
		"in the gradient of layers of a loop": func(in *graph.Node) *graph.Node {
			// The loss is x * product of (table / table), and each layer also reads the other table.
			x := graph.ConvertDType(in, dtypes.Float64)
			out := loops.Run(nil, 3, loops.Arguments{Carried: []*graph.Node{x}}, func(l *loops.Layer) loops.Results {
				g := l.Carried[0].Graph()
				sum := graph.ConvertDType(sumOf(graph.ConstTensor(g, table)), dtypes.Float64)
				zero := graph.ReduceAllSum(graph.MulScalar(graph.Const(g, floats), 0))
				return loops.Results{Carried: []*graph.Node{graph.Add(graph.Div(graph.Mul(l.Carried[0], sum), sum), zero)}}
			}, loops.Options{Keep: remat.Nothing()})
			sum := graph.ConvertDType(sumOf(graph.ConstTensor(x.Graph(), table)), dtypes.Float64)
			return graph.ConvertDType(graph.Gradient(graph.Mul(out.Carried[0], sum), x)[0], dtypes.Int64)
		},
	}
	strategytest.OnMeshes(t, [][2]int{{1, 1}, {2, 1}, {1, 2}, {2, 2}}, func(t *testing.T, s *strategy.TPUStrategy) {
		devices = s.NumLogicalDevices()
		for name, step := range steps {
			f := s.Function(func(_ *strategy.ReplicaContext,
				in []*graph.Node) []*graph.Node {
				return []*graph.Node{step(in[0])}
			}, strategy.FunctionOptions{Name: name})
			c, err := f.Compiled(ctx, int32(1))
			require.NoError(t, err, name)
			assert.Less(t, len(c.Module.Text), 100_000, "%s: bytes of text", name)
			constants := 0
			for i, a := range c.Module.Arguments {
				if a.IsConstant {
					constants++
					assert.False(t, a.Donated, name)
					assert.False(t, c.Variables[i], name)
				}
			}
			if assert.Positive(t, constants, name); constants == 2 {
				assert.Equal(t, "in the gradient of layers of a loop", name)
			}
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
		assert.Empty(t, s.DistributedVariables(), "a constant is not a variable of the user")
		assert.Equal(t, 2, strategy.LargeConstants(s), "all programs share the constants")
	})
}

// sum returns a function that returns the sum of a table that it closes over, plus its argument.
func sum(s *strategy.TPUStrategy, table *tensors.Tensor) *strategy.Function {
	return s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.Add(in[0], sumOf(graph.ConstTensor(in[0].Graph(), table)))}
	}, strategy.FunctionOptions{Name: "sum"})
}

// The text of a program does not depend on the elements of its large constants, so that a compile cache
// finds the program again. A constant below the limit, and one whose elements are equal, stay in the text.
func TestTheTextOfAProgramDoesNotDependOnItsLargeConstants(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	var texts []string
	for first := range int32(2) {
		table, want := tableOf(first)
		f := sum(s, table)
		c, err := f.Compiled(ctx, int64(1))
		require.NoError(t, err)
		texts = append(texts, string(c.Module.Text))
		out, err := f.Run(ctx, int64(1))
		require.NoError(t, err)
		got, err := out[0].Local(ctx, 1)
		require.NoError(t, err)
		assert.Equal(t, want+1, got.Value())
	}
	assert.Equal(t, texts[0], texts[1])
	small := make([]int32, tableRows/4)
	small[0] = 1
	for _, x := range []*tensors.Tensor{tensors.FromFlatDataAndDimensions(small[:len(small)/2], len(small)/2),
		tensors.FromFlatDataAndDimensions(make([]int32, tableRows), tableRows)} {
		c, err := sum(s, x).Compiled(ctx, int64(1))
		require.NoError(t, err)
		assert.Len(t, c.Module.Arguments, 1)
	}
}

// A launch allocates nothing, and the constant is freed with the last function that uses it.
func TestLargeConstantsAreCopiedOnceAndFreed(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	table, want := tableOf(2)
	first, second := sum(s, table), sum(s, table)
	for _, f := range []*strategy.Function{first, second} {
		b, err := f.Bind(ctx, int64(1))
		require.NoError(t, err)
		require.NoError(t, b.Launch(ctx))
		assert.Zero(t, testing.AllocsPerRun(20, func() { err = errors.Join(err, b.Launch(ctx)) }))
		require.NoError(t, err)
		got, err := b.Results()[0].Local(ctx, 0)
		require.NoError(t, err)
		assert.Equal(t, want+1, got.Value())
		require.NoError(t, b.Close())
	}
	assert.Equal(t, 1, strategy.LargeConstants(s))
	require.NoError(t, first.Close())
	assert.Equal(t, 1, strategy.LargeConstants(s), "the other function uses it")
	out, err := second.Run(ctx, int64(1))
	require.NoError(t, err)
	require.NoError(t, out[0].Close())
	require.NoError(t, second.Close())
	assert.Zero(t, strategy.LargeConstants(s))

	_, err = sum(s, table).Lowered(ctx, int64(1))
	require.NoError(t, err)
	_, err = s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		_ = graph.ConstTensor(in[0].Graph(), table)
		panic(errors.New("after the constant"))
	}, strategy.FunctionOptions{}).Run(ctx, int64(1))
	require.ErrorContains(t, err, "after the constant")
	assert.Zero(t, strategy.LargeConstants(s), "a trace without a program does not keep it")
}

// Ahead of time a large constant is an argument, too. The report counts its memory once per device.
func TestAOTLargeConstantsAreArguments(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	ctx := context.Background()
	table, _ := tableOf(2)
	for _, logicalDevices := range []int{1, 2} {
		s := strategytest.Ahead(t, "v5e:2x4", strategy.Options{LogicalDevices: logicalDevices})
		f := s.Function(func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			rows := graph.Gather(graph.ConstTensor(in[0].Graph(), table), graph.InsertAxes(in[0], -1))
			return []*graph.Node{graph.ReduceAllSum(rows)}
		}, strategy.FunctionOptions{SplitBatch: true})
		c, err := f.Compiled(ctx, shapes.Make(dtypes.Int32, 64))
		require.NoError(t, err)
		assert.Less(t, len(c.Module.Text), 100_000)
		stats, err := c.Program.MemoryStats()
		require.NoError(t, err)
		const bytes = tableRows * 4
		assert.GreaterOrEqual(t, stats.Arguments, int64(bytes))
		assert.Less(t, stats.Arguments, int64(bytes*5/4))
		r, err := report.Of(c)
		require.NoError(t, err)
		tensors := 0
		for _, x := range r.Tensors {
			if x.Name == "constant_0" {
				tensors++
				assert.Equal(t, "argument", x.Role)
				assert.Equal(t, int64(bytes), x.BytesPerCore)
			}
		}
		assert.Equal(t, 1, tensors)
		assert.Less(t, r.Memory.Arguments, int64(bytes*5/4))
	}
}
