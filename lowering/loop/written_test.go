package loop_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/loop"
	"github.com/tpustrategy/tpustrategy/lowering/remat"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/eager"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// statistics are variables of several kinds that layers write.
type statistics struct {
	weights, sum, mean, last, count *strategy.Variable
}

func newStatistics(t *testing.T, s *strategy.TPUStrategy) statistics {
	variable := func(value any, name string, on strategy.VariableSynchronization, a strategy.VariableAggregation,
		trains bool) *strategy.Variable {
		v, err := s.NewVariable(context.Background(), value, strategy.VariableOptions{Name: name, Synchronization: on,
			Aggregation: a, Trainable: &trains})
		require.NoError(t, err)
		return v
	}
	weights := make([][]float32, width)
	for i := range weights {
		weights[i] = make([]float32, width)
		for k := range weights[i] {
			weights[i][k] = float32((i*5+k*3)%7-3) / 8
		}
	}
	return statistics{
		weights: variable(weights, "weights", strategy.OnWrite, strategy.AggregateMean, true),
		sum:     variable(float32(0), "sum", strategy.OnRead, strategy.AggregateSum, false),
		mean:    variable(make([]float32, width), "mean", strategy.OnRead, strategy.AggregateMean, false),
		last:    variable(float32(1), "last", strategy.OnWrite, strategy.AggregateMean, false),
		count:   variable(int32(0), "count", strategy.OnRead, strategy.AggregateSum, false),
	}
}

// layer reads values written by earlier layers and writes values for later layers. All written
// values have gradients.
func (v statistics) layer(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
	h := logical.Split(graph.Dot(x, rc.Read(v.weights)).Product(), 1, rc.Strategy().NumLogicalDevices())
	h = graph.Tanh(graph.Mul(h, rc.Read(v.last)))
	rc.AssignAdd(v.sum, graph.ReduceAllSum(graph.Square(h)))
	rc.AssignAdd(v.mean, graph.ReduceMean(h, 0))
	rc.AssignAdd(v.count, int32(1))
	rc.Assign(v.last, graph.AddScalar(graph.ReduceAllMean(graph.Abs(h)), 1))
	return graph.Add(x, graph.MulScalar(h, 0.5))
}

func (v statistics) values(t *testing.T) (all []float64) {
	for _, v := range []*strategy.Variable{v.sum, v.mean, v.last, v.count, v.weights} {
		value, err := v.Value(context.Background())
		require.NoError(t, err)
		all = append(all, strategytest.Numbers(t, value)...)
	}
	return all
}

// stacksOf returns 4 layers of statistics: unrolled, in blocks, and in loops with all policies.
func stacksOf() map[string]func(v statistics, rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
	all := map[string]func(v statistics, rc *strategy.ReplicaContext, x *graph.Node) *graph.Node{
		"one after another": func(v statistics, rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			for range 4 {
				x = v.layer(rc, x)
			}
			return x
		},
		"blocks": func(v statistics, rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			for range 4 {
				x = remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node { return v.layer(rc, x) })
			}
			return x
		},
		"a loop of loops of blocks": func(v statistics, rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return loop.Layers(nil, 2, x, func(_ *model.Scope, x *graph.Node) *graph.Node {
				return loop.Layers(nil, 2, x, func(_ *model.Scope, x *graph.Node) *graph.Node {
					return remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node { return v.layer(rc, x) })
				}, loop.Options{Keep: remat.Products()})
			}, loop.Options{})
		},
		"a loop behind a layer": func(v statistics, rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			x = v.layer(rc, x)
			x = loop.Layers(nil, 2, x, func(_ *model.Scope, x *graph.Node) *graph.Node { return v.layer(rc, x) },
				loop.Options{Keep: remat.Nothing()})
			return v.layer(rc, x)
		},
	}
	for name, keep := range policies {
		all["a loop that keeps "+name] = func(v statistics, rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
			return loop.Layers(nil, 4, x, func(_ *model.Scope, x *graph.Node) *graph.Node {
				return v.layer(rc, remat.Name(x, "activation"))
			}, loop.Options{Keep: keep})
		}
	}
	return all
}

// Training with Adam on values written by layers has the same losses, weights and statistics as
// with unrolled layers.
func TestLayersWriteVariablesOfTheStrategy(t *testing.T) {
	ctx := context.Background()
	stacks := stacksOf()
	names := map[[2]int][]string{
		{1, 1}: {"blocks", "a loop that keeps nothing"},
		{2, 2}: {"a loop that keeps nothing", "a loop that keeps names", "a loop of loops of blocks"},
		{4, 1}: {"a loop that keeps everything", "a loop that keeps products", "a loop behind a layer"},
	}
	strategytest.OnMeshes(t, slices.Collect(maps.Keys(names)), func(t *testing.T, s *strategy.TPUStrategy) {
		run := func(of func(v statistics, rc *strategy.ReplicaContext, x *graph.Node) *graph.Node) (all [][]float64) {
			v := newStatistics(t, s)
			loss := lossSum(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
				x = of(v, rc, x)
				return graph.Mul(x, rc.Read(v.last)) // what the last layer left has a gradient too
			})
			step := strategytest.OK(train.New(s, strategytest.SeededStore(), optimizer.Adam().LearningRate(0.01).Done(), loss,
				train.Options{}))
			for i := range 3 {
				x, y := batch(i)
				l, err := step.Run(ctx, x, y)
				require.NoError(t, err)
				all = append(all, append(v.values(t), strategytest.Float64(t, l)))
			}
			if s.NumReplicasInSync() == 4 {
				x, y := strategytest.Sums(7, width) // two rows a replica, and one
				_, err := step.Run(ctx, x, y)
				require.NoError(t, err)
				all = append(all, v.values(t))
			}
			l, err := step.RunSteps(ctx, strategytest.Batches(3, 3)...)
			require.NoError(t, err)
			return append(all, append(v.values(t), strategytest.Float64(t, l)))
		}
		want := run(stacks["one after another"])
		layers := 4 * (len(want) + 2) * s.NumReplicasInSync()
		assert.Equal(t, float64(layers), want[len(want)-1][1+width+1], "each layer of each step counts")
		for _, name := range names[[2]int{s.NumReplicasInSync(), s.NumLogicalDevices()}] {
			t.Run(name, func(t *testing.T) {
				for i, got := range run(stacks[name]) {
					assert.InDeltaSlice(t, want[i], got, 2e-4, fmt.Sprint(i))
				}
			})
		}
	})
}

// A step without optimizer writes a variable that only the block uses, reads it after the loop, and
// computes a gradient through the written value.
func TestWritesOfLayersInAStep(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	for name, keep := range policies {
		if name == "names" {
			continue
		}
		v, err := s.NewVariable(ctx, float32(2), strategy.VariableOptions{Synchronization: strategy.OnRead,
			Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		out, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			y := loop.Layers(nil, 3, in[0], func(_ *model.Scope, x *graph.Node) *graph.Node {
				rc.Assign(v, graph.Mul(rc.Read(v), x))
				return graph.AddScalar(x, 1)
			}, loop.Options{Keep: keep})
			left := rc.Read(v) // 2 x (x+1) (x+2)
			return []*graph.Node{y, left, graph.Gradient(left, in[0])[0]}
		}, strategy.FunctionOptions{}).Run(ctx, float32(3))
		require.NoError(t, err, name)
		assert.Equal(t, []any{float32(6), float32(6)}, strategytest.Values(t, out[0], 2))
		assert.Equal(t, []any{float32(120), float32(120)}, strategytest.Values(t, out[1], 2))
		assert.Equal(t, []any{float32(94), float32(94)}, strategytest.Values(t, out[2], 2))
		value, err := v.Value(ctx)
		require.NoError(t, err)
		assert.Equal(t, float32(240), tensors.ToScalar[float32](value))
	}
}

// A sum over the layers that is not used adds nothing to the backward pass.
func TestNoBackwardPassForSums(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	v, err := s.NewVariable(ctx, float32(0), strategy.VariableOptions{Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	cosines := func(write bool) (n int) {
		m, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			y := loop.Layers(nil, 3, in[0], func(_ *model.Scope, x *graph.Node) *graph.Node {
				if write {
					rc.AssignAdd(v, graph.ReduceAllSum(graph.Sin(x)))
				}
				return graph.Exp(x)
			}, loop.Options{})
			return []*graph.Node{graph.Gradient(graph.ReduceAllSum(y), in[0])[0]}
		}, strategy.FunctionOptions{}).Lowered(ctx, shapes.Make(dtypes.Float32, 4))
		require.NoError(t, err)
		return strings.Count(string(m.Text), "cosine")
	}
	assert.Equal(t, cosines(false), cosines(true))
}

// The table lists blocks that must not write variables.
func TestErrorsOfWritesInLayers(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	v, err := s.NewVariable(ctx, float32(2), strategy.VariableOptions{Name: "v", Synchronization: strategy.OnRead,
		Aggregation: strategy.AggregateSum})
	require.NoError(t, err)
	run := func(block func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node) (float32, error) {
		var failed error
		out, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			func() {
				defer func() {
					if e, ok := recover().(error); ok {
						failed = e
					}
				}()
				loop.Layers(nil, 2, in[0], func(_ *model.Scope, x *graph.Node) *graph.Node { return block(rc, x) }, loop.Options{})
			}()
			return []*graph.Node{rc.Read(v)}
		}, strategy.FunctionOptions{}).Run(ctx, []float32{1, 3})
		if err != nil {
			return 0, err
		}
		return strategytest.Values(t, out[0], 2)[0].(float32), failed
	}
	value, err := run(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		rc.Assign(v, x)
		return x
	})
	require.ErrorContains(t, err, "a value of shape (Float32)[2] for a variable of shape (Float32)")
	assert.Equal(t, errkind.ValueError, errkind.KindOf(err))
	assert.Equal(t, float32(2), value, "the variable is what it was")
	value, err = run(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		rc.Assign(v, graph.ReduceAllSum(x))
		return remat.Block(remat.Nothing(), x, func(x *graph.Node) *graph.Node {
			rc.AssignAdd(v, graph.ReduceAllSum(x))
			panic(&errkind.Fault{Op: "test", Reason: "of its own making", Class: errkind.ValueError})
		})
	})
	require.ErrorContains(t, err, "of its own making")
	assert.Equal(t, float32(2), value, "nothing was written")
	_, err = run(func(rc *strategy.ReplicaContext, x *graph.Node) *graph.Node {
		cond := graph.NewClosure(rc.Graph(), func(g *graph.Graph) []*graph.Node {
			return []*graph.Node{graph.LessThan(graph.ReduceAllSum(graph.Parameter(g, "x", x.Shape())),
				graph.Const(g, float32(1)))}
		})
		body := graph.NewClosure(rc.Graph(), func(g *graph.Graph) []*graph.Node {
			x := graph.Parameter(g, "x", x.Shape())
			rc.Assign(v, graph.ReduceAllSum(x))
			return []*graph.Node{x}
		})
		return graph.While(cond, body, x)[0]
	})
	require.Error(t, err)
	assert.NotEqual(t, errkind.Unknown, errkind.KindOf(err))
}

// Layers write with merge calls and scattered updates.
func TestLayersWriteInOtherWays(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	run := func(stack func(x *graph.Node, layer func(x *graph.Node) *graph.Node) *graph.Node) (all []any) {
		merged, err := s.NewVariable(ctx, float32(1), strategy.VariableOptions{Aggregation: strategy.AggregateMean})
		require.NoError(t, err)
		rows, err := s.NewVariable(ctx, []float32{1, 2, 3, 4}, strategy.VariableOptions{Aggregation: strategy.AggregateSum})
		require.NoError(t, err)
		f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			return []*graph.Node{stack(in[0], func(x *graph.Node) *graph.Node {
				mean := graph.ReduceAllMean(x)
				eager.MergeCall(rc, func(mc *eager.MergeContext, args ...*eager.MergeValue) []*eager.MergeValue {
					mc.AssignAdd(merged, mc.Reduce(strategy.Sum, args[0]))
					return nil
				}, mean)
				rc.Scatter(strategy.ScatterAdd, rows, graph.Const(rc.Graph(), []int32{1, 3}), graph.BroadcastPrefix(mean, 2))
				return graph.AddScalar(graph.Mul(x, rc.Read(merged)), 1)
			})}
		}, strategy.FunctionOptions{Store: strategytest.SeededStore(), Training: true})
		for _, batch := range [][]float32{{1, 2, 3, 4}, {2, 3}} {
			x, err := s.SplitBatch(ctx, batch, logical.Annotation{}, false)
			require.NoError(t, err)
			_, err = f.Run(ctx, x)
			require.NoError(t, err)
			for _, v := range []*strategy.Variable{merged, rows} {
				value, err := v.Value(ctx)
				require.NoError(t, err)
				all = append(all, value.Value())
			}
		}
		return all
	}
	want := run(func(x *graph.Node, layer func(x *graph.Node) *graph.Node) *graph.Node { return layer(layer(layer(x))) })
	assert.Equal(t, want, run(func(x *graph.Node, layer func(x *graph.Node) *graph.Node) *graph.Node {
		return loop.Layers(nil, 3, x, func(_ *model.Scope, x *graph.Node) *graph.Node { return layer(x) }, loop.Options{})
	}))
}
