package strategy_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/ragged"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestStatesOfReplicasWithoutRowsStay(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	seen, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Name: "seen", Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	store := model.NewStore()
	step := strategytest.OK(train.New(s, store, optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			w := rc.Scope().VariableWithValue("w", float32(1)).NodeValue(rc.Graph())
			mean := graph.ReduceAllMean(in[0])
			rc.Assign(seen, mean)
			return graph.Mul(w, mean)
		}, train.Options{}))
	loss, err := step.Run(ctx, []float32{4})
	require.NoError(t, err)
	value, err := loss.Float64(ctx)
	require.NoError(t, err)
	assert.Equal(t, 4.0, value)
	var got []any
	for r := range 2 {
		x, err := seen.Local(ctx, r)
		require.NoError(t, err)
		got = append(got, x.Value())
	}
	assert.Equal(t, []any{float32(4), float32(1)}, got)
}

// The error names an op that cannot exclude the padding. Without padding the op is valid.
func TestWhatCannotLeavePaddingOutIsRefused(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	x, err := s.PerReplica(ctx, []any{[][]float32{{1, 2}, {3, 4}, {5, 6}}, [][]float32{{7, 8}}}, logical.Annotation{})
	require.NoError(t, err)
	even, err := s.PerReplica(ctx, []any{[][]float32{{1, 2}, {3, 4}, {5, 6}}, [][]float32{{7, 8}, {9, 10}, {11, 12}}},
		logical.Annotation{})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		op   string
		dim  int
		step func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node
	}{
		"reverse": {"reverse", 0, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node { return graph.Reverse(x, 0) }},
		"concatenate": {"concatenate", 0, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.Concatenate([]*graph.Node{x, x}, 0)
		}},
		"slice": {"slice", 0, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.Slice(x, graph.AxisRange(0, 1))
		}},
		"sort": {"sort", 0, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node { return graph.Sort(x, 0, true) }},
		"mixed": {"reshape", 1, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.Reshape(graph.Transpose(x, 0, 1), -1)
		}},
		"sum over replicas": {"a collective", 0, func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return rc.AllReduce(strategy.Sum, x)
		}},
		"all gather": {"a collective", 0, func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return rc.AllGather(x, 0)
		}},
		"dynamic slice": {"dynamic_slice", 0, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.DynamicSlice(x, []*graph.Node{graph.Const(x.Graph(), int32(0)), graph.Const(x.Graph(), int32(0))},
				[]int{1, 2})
		}},
		"windows": {"reduce_window", 1, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.MaxPool(graph.Reshape(x, 1, -1, 2)).Window(2).Strides(1).NoPadding().Done()
		}},
		"odd numbers": {"constant", -1, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.MulScalar(x, math.Log(float64(x.Shape().Dimensions[0])))
		}},
		"branches on the size": {"", -1, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			if x.Shape().Dimensions[0] > 3 {
				return graph.Neg(x)
			}
			return graph.Sin(x)
		}},
		"one size only": {"", -1, func(_ *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return graph.Add(x, graph.Const(x.Graph(), [][]float32{{1, 1}, {2, 2}, {3, 3}}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			step := func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				return []*graph.Node{c.step(rc, in[0])}
			}
			f := s.Function(step, strategy.FunctionOptions{Name: "f", Padding: strategy.MaskPadding})
			_, err := f.Run(ctx, x)
			var wrong *ragged.Error
			require.ErrorAs(t, err, &wrong)
			assert.Equal(t, c.op, wrong.Op)
			assert.Equal(t, c.dim, wrong.Dim, err)
			assert.NotEmpty(t, wrong.Reason)
			var trace *strategy.TraceError
			require.ErrorAs(t, err, &trace)
			_, err = f.Run(ctx, even)
			require.NoError(t, err)
			_, err = s.Function(step, strategy.FunctionOptions{Padding: strategy.KeepPadding}).Run(ctx, x)
			require.NoError(t, err)
		})
	}
}

// Ops on rows that must not depend on other rows.
func TestOpsThatKeepRowsApart(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	one := strategytest.New(t, 1, 1)
	rng := rand.New(rand.NewPCG(5, 6))
	x, at := strategytest.Normals(rng, 4, 3), strategytest.Classes(rng, 3, 4, 1)
	batch := []*tensors.Tensor{x, at}
	args := poisoned(t, s, batch, []int{3, 1}, 3)
	f := func(s *strategy.TPUStrategy) *strategy.Function {
		return s.Function(keptApart, strategy.FunctionOptions{Padding: strategy.MaskPadding})
	}
	got, err := f(s).Run(ctx, args...)
	require.NoError(t, err)
	for r, rows := range [][2]int{{0, 3}, {3, 4}} {
		want, err := f(one).Run(ctx, take(batch, rows[0], rows[1])...)
		require.NoError(t, err)
		for i := range want {
			a, err := want[i].Local(ctx, 0)
			require.NoError(t, err)
			b, err := got[i].Local(ctx, r)
			require.NoError(t, err)
			require.Equal(t, a.Shape().String(), b.Shape().String(), "result %d", i)
			assert.True(t, a.InDelta(b, 1e-4), "result %d of replica %d: %s, want %s", i, r, b, a)
		}
	}
}

func keptApart(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
	x, at := in[0], in[1] // [n, 3], [n, 1]
	g, n := x.Graph(), x.Shape().Dimensions[0]
	iota := graph.Iota(g, at.Shape(), 0)
	picked := graph.Gather(x, graph.Concatenate([]*graph.Node{iota, at}, -1))
	return []*graph.Node{
		picked, graph.ScatterSum(graph.Zeros(g, in[0].Shape()), graph.Concatenate([]*graph.Node{iota, at}, -1), picked, false,
			false),
		graph.ScatterSum(graph.BroadcastToDims(graph.Const(g, float32(1)), 3, 3), at, x, false, false),
		graph.ScatterMax(graph.BroadcastToDims(graph.Const(g, float32(-5)), 3, 3), at, x, false, false),
		graph.Slice(x, graph.AxisRange(), graph.AxisRange(1, 3)), graph.Concatenate([]*graph.Node{x, graph.Neg(x)}, 1),
		graph.Reverse(x, 1), graph.Reshape(x, n*3), graph.Reshape(x, 1, n, 3, 1), graph.Reshape(graph.Reshape(x, -1), -1, 3),
		graph.DotGeneral(x, []int{0}, nil, x, []int{0}, nil), graph.CumSum(x, 0),
		graph.MulScalar(graph.ReduceSum(x, 0), 1/math.Sqrt(float64(n))),
		graph.AddScalar(graph.ReduceSum(x, 0), float64(n-1)), graph.Where(graph.GreaterThan(x, graph.ZerosLike(x)), x,
			graph.Neg(x)),
		graph.ReduceAllMean(graph.OneHot(graph.Squeeze(at, 1), 3, dtypes.Float32)), graph.TransposeAllAxes(x, 1, 0),
		graph.ReduceAndKeep(x, graph.ReduceMean, 0), graph.Sort(x, 1, true), graph.CumSum(graph.Reverse(x, 1), 1),
	}
}

// A sequence that is padded in its second dimension, with unpadded rows.
func TestPaddedSequences(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	x := []any{[][]float32{{1, 2, 3}, {4, 5, 6}}, [][]float32{{7}, {9}}}
	v, err := s.PerReplica(ctx, x, logical.Annotation{})
	require.NoError(t, err)
	step := func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.ReduceMean(in[0], 1), graph.ReduceAllMean(in[0]), graph.ReduceMean(in[0], 0),
			graph.Softmax(in[0], 1)}
	}
	out, err := s.Function(step, strategy.FunctionOptions{Padding: strategy.MaskPadding}).Run(ctx, v)
	require.NoError(t, err)
	assert.Equal(t, []any{[]float32{2, 5}, []float32{7, 9}}, strategytest.Values(t, out[0], 2))
	assert.Equal(t, []any{float32(3.5), float32(8)}, strategytest.Values(t, out[1], 2))
	assert.Equal(t, []any{[]float32{2.5, 3.5, 4.5}, []float32{8}}, strategytest.Values(t, out[2], 2))
	assert.Equal(t, [][]float32{{1}, {1}}, strategytest.Values(t, out[3], 2)[1])
	// The rows and the length differ, and two arguments differ.
	both, err := s.PerReplica(ctx, []any{[][]float32{{1, 2, 3}, {4, 5, 6}}, [][]float32{{7, 8}}}, logical.Annotation{})
	require.NoError(t, err)
	rows, err := s.PerReplica(ctx, []any{[]float32{1, 2}, []float32{3}}, logical.Annotation{})
	require.NoError(t, err)
	out, err = s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		weighted := graph.Mul(in[0], graph.ExpandAxes(in[1], -1))
		return []*graph.Node{graph.ReduceAllMean(in[0]), graph.ReduceMean(weighted, 0), graph.ReduceAllSum(weighted)}
	}, strategy.FunctionOptions{Padding: strategy.MaskPadding}).Run(ctx, both, rows)
	require.NoError(t, err)
	assert.Equal(t, []any{float32(3.5), float32(7.5)}, strategytest.Values(t, out[0], 2))
	assert.Equal(t, []any{[]float32{4.5, 6, 7.5}, []float32{21, 24}}, strategytest.Values(t, out[1], 2))
	assert.Equal(t, []any{float32(36), float32(45)}, strategytest.Values(t, out[2], 2))
}

func TestLoopsAndBranchesLeavePaddingOut(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	one := strategytest.New(t, 1, 1)
	step := func(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		x := in[0]
		g, n := x.Graph(), x.Shape().Dimensions[0]
		cond := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			i := graph.Parameter(g, "i", shapes.Make(dtypes.Int32))
			graph.Parameter(g, "x", x.Shape())
			return []*graph.Node{graph.LessThan(i, graph.Const(g, int32(3)))}
		})
		body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			i := graph.Parameter(g, "j", shapes.Make(dtypes.Int32))
			y := graph.Parameter(g, "y", x.Shape())
			mean := graph.Div(graph.ReduceSum(y, 0), graph.Const(g, float32(n)))
			return []*graph.Node{graph.AddScalar(i, 1), graph.Add(graph.Mul(y, graph.Const(g, float32(0.5))),
				graph.BroadcastPrefix(mean, n))}
		})
		looped := graph.While(cond, body, graph.Const(g, int32(0)), x)[1]
		branch := func(f func() *graph.Node) *graph.Function {
			return graph.NewClosure(g, func(*graph.Graph) []*graph.Node { return []*graph.Node{f()} })
		}
		chosen := graph.If(graph.GreaterThan(graph.ReduceAllMean(x), graph.Const(g, float32(0))),
			branch(func() *graph.Node { return graph.Div(graph.ReduceSum(x, 0), graph.Const(g, float32(n))) }),
			branch(func() *graph.Node { return graph.ReduceMax(x, 0) }))[0]
		return []*graph.Node{looped, chosen}
	}
	x := strategytest.Normals(rand.New(rand.NewPCG(7, 8)), 5, 3)
	f := func(s *strategy.TPUStrategy) *strategy.Function {
		return s.Function(step, strategy.FunctionOptions{Padding: strategy.MaskPadding})
	}
	got, err := f(s).Run(ctx, poisoned(t, s, []*tensors.Tensor{x}, []int{3, 2}, 3)...)
	require.NoError(t, err)
	for r, rows := range [][2]int{{0, 3}, {3, 5}} {
		want, err := f(one).Run(ctx, take([]*tensors.Tensor{x}, rows[0], rows[1])...)
		require.NoError(t, err)
		for i := range want {
			a, err := want[i].Local(ctx, 0)
			require.NoError(t, err)
			b, err := got[i].Local(ctx, r)
			require.NoError(t, err)
			assert.True(t, a.InDelta(b, 1e-5), "result %d of replica %d: %s, want %s", i, r, b, a)
		}
	}
}

// Random numbers are also drawn for the padding, but not used.
func TestDropoutOfUnevenBatches(t *testing.T) {
	ctx := context.Background()
	for _, mirrored := range []bool{false, true} {
		s := strategytest.New(t, 2, 1)
		step := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
			func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
				h := layers.DropoutStatic(rc.Scope("drop"), layers.Dense(rc.Scope("a"), in[0], true, 64), 0.5)
				kept := graph.ConvertDType(graph.NotEqual(h, graph.ZerosLike(h)), h.DType())
				return graph.Add(graph.ReduceAllMean(kept), graph.MulScalar(graph.ReduceAllMean(h), 1e-3))
			}, train.Options{MirroredRandomNumbers: mirrored}))
		loss, err := step.Run(ctx, poisoned(t, s, []*tensors.Tensor{strategytest.Normals(rand.New(rand.NewPCG(1, 1)), 40, 8)},
			[]int{39, 1}, 64)...)
		require.NoError(t, err)
		value, err := loss.Float64(ctx)
		require.NoError(t, err)
		assert.InDelta(t, 0.5, value, 0.1)
	}
}
