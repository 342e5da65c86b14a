package strategy_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/layers"
	"github.com/gomlx/gomlx/ml/layers/norm"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/gomlx/gomlx/ml/train/optimizer"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

// oddCase is a legal step that is unlike the usual ones. x is [1 2 3 4] on replica
// 0, 4 more on the next, n is 7 as int32 on all.
type oddCase struct {
	name string
	step func(rc *strategy.ReplicaContext, x, n *graph.Node, p int) []*graph.Node
	want func(r, replicas int) []any
}

func ramp(r int) []float32 {
	v := float32(4 * r)
	return []float32{v + 1, v + 2, v + 3, v + 4}
}

var oddCases = []oddCase{
	{"constants only", func(rc *strategy.ReplicaContext, _, _ *graph.Node, _ int) []*graph.Node {
		return []*graph.Node{graph.Const(rc.Graph(), float32(3)), graph.Const(rc.Graph(), []int64{1, 2}), graph.Const(rc.Graph(), true)}
	}, func(int, int) []any { return []any{float32(3), []int64{1, 2}, true} }},
	{"arguments as results", func(_ *strategy.ReplicaContext, x, n *graph.Node, _ int) []*graph.Node {
		return []*graph.Node{x, n}
	}, func(r, _ int) []any { return []any{ramp(r), int32(7)} }},
	{"one argument as several results", func(_ *strategy.ReplicaContext, x, n *graph.Node, _ int) []*graph.Node {
		return []*graph.Node{x, x, n, n, x}
	}, func(r, _ int) []any { return []any{ramp(r), ramp(r), int32(7), int32(7), ramp(r)} }},
	{"one op as several results", func(_ *strategy.ReplicaContext, x, _ *graph.Node, _ int) []*graph.Node {
		y := graph.Neg(graph.Neg(x))
		return []*graph.Node{y, y}
	}, func(r, _ int) []any { return []any{ramp(r), ramp(r)} }},
	{"an argument annotated and returned", func(rc *strategy.ReplicaContext, x, n *graph.Node, p int) []*graph.Node {
		return []*graph.Node{logical.Replicate(logical.Assign(x, p-1)), logical.Assign(n, 0)}
	}, func(r, _ int) []any { return []any{ramp(r), int32(7)} }},
	{"a constant annotated", func(rc *strategy.ReplicaContext, _, _ *graph.Node, p int) []*graph.Node {
		return []*graph.Node{logical.Split(graph.Const(rc.Graph(), []float32{1, 2, 3, 4}), p), logical.Assign(graph.Const(rc.Graph(), int8(-1)), p-1)}
	}, func(int, int) []any { return []any{[]float32{1, 2, 3, 4}, int8(-1)} }},
	{"many annotations of one value", func(_ *strategy.ReplicaContext, x, _ *graph.Node, p int) []*graph.Node {
		for range 20 {
			x = logical.Replicate(logical.Split(logical.Assign(x, p/2), p))
		}
		return []*graph.Node{x}
	}, func(r, _ int) []any { return []any{ramp(r)} }},
	{"a region of constants", func(rc *strategy.ReplicaContext, x, _ *graph.Node, p int) []*graph.Node {
		return logical.OnMany(p-1, []*graph.Node{x}, func([]*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Const(rc.Graph(), float32(2)), graph.Const(rc.Graph(), []int32{5})}
		})
	}, func(int, int) []any { return []any{float32(2), []int32{5}} }},
	{"a region that returns its argument and a constant from outside", func(rc *strategy.ReplicaContext, x, n *graph.Node, p int) []*graph.Node {
		c := graph.Const(rc.Graph(), []bool{true, false})
		return logical.OnMany(0, []*graph.Node{x, n, x}, func(in []*graph.Node) []*graph.Node { return []*graph.Node{in[2], c, in[1], in[2]} })
	}, func(r, _ int) []any { return []any{ramp(r), []bool{true, false}, int32(7), ramp(r)} }},
	{"a chain of regions that keep scalars", func(_ *strategy.ReplicaContext, _, n *graph.Node, p int) []*graph.Node {
		for i := range 12 {
			n = logical.On(i/3%p, n, func(n *graph.Node) *graph.Node { return graph.Add(n, n) })
		}
		return []*graph.Node{n}
	}, func(int, int) []any { return []any{int32(7 << 12)} }},
	{"regions whose results nobody reads", func(_ *strategy.ReplicaContext, x, n *graph.Node, p int) []*graph.Node {
		y := logical.On(0, x, graph.Exp)
		logical.On(p-1, y, graph.Exp)
		return []*graph.Node{n}
	}, func(int, int) []any { return []any{int32(7)} }},
	{"a collective between regions of one device", func(rc *strategy.ReplicaContext, x, _ *graph.Node, p int) []*graph.Node {
		y := logical.On(p-1, x, func(x *graph.Node) *graph.Node { return graph.MulScalar(x, 2) })
		y = rc.AllReduce(strategy.Mean, y)
		return []*graph.Node{logical.On(p-1, y, func(y *graph.Node) *graph.Node { return graph.AddScalar(y, 1) })}
	}, func(_, replicas int) []any {
		mean := make([]float32, 4)
		for i := range mean {
			mean[i] = float32(2*(i+1)+4*(replicas-1)) + 1
		}
		return []any{mean}
	}},
	{"a function that is called twice", func(rc *strategy.ReplicaContext, x, _ *graph.Node, _ int) []*graph.Node {
		double := graph.NewFunction(rc.Graph(), "double", func(g *graph.Graph) []*graph.Node {
			y := graph.Parameter(g, "y", shapes.Make(dtypes.Float32, 4))
			return []*graph.Node{graph.Add(y, y)}
		})
		return double.Call(double.Call(x)[0])
	}, func(r, _ int) []any {
		v := ramp(r)
		for i := range v {
			v[i] *= 4
		}
		return []any{v}
	}},
	{"a function that is called in a region and holds an annotation", func(rc *strategy.ReplicaContext, x, _ *graph.Node, p int) []*graph.Node {
		double := graph.NewFunction(rc.Graph(), "double", func(g *graph.Graph) []*graph.Node {
			y := graph.Parameter(g, "y", shapes.Make(dtypes.Float32, 4))
			return []*graph.Node{graph.Add(y, y)}
		})
		return []*graph.Node{logical.On(p-1, x, func(x *graph.Node) *graph.Node { return double.Call(x)[0] })}
	}, func(r, _ int) []any {
		v := ramp(r)
		for i := range v {
			v[i] *= 2
		}
		return []any{v}
	}},
	{"a sort beside a region", func(_ *strategy.ReplicaContext, x, _ *graph.Node, p int) []*graph.Node {
		y := logical.On(p-1, x, func(x *graph.Node) *graph.Node { return graph.Sort(x, 0, false) })
		return []*graph.Node{y, graph.Sort(logical.Split(y, p), 0, true)}
	}, func(r, _ int) []any {
		v := ramp(r)
		return []any{[]float32{v[3], v[2], v[1], v[0]}, v}
	}},
	{"many results", func(rc *strategy.ReplicaContext, _, n *graph.Node, _ int) []*graph.Node {
		var all []*graph.Node
		for i := range 40 {
			all = append(all, graph.Add(n, graph.Const(rc.Graph(), int32(i))))
		}
		return all
	}, func(int, int) []any {
		var all []any
		for i := range 40 {
			all = append(all, int32(7+i))
		}
		return all
	}},
	{"a large constant", func(rc *strategy.ReplicaContext, _, n *graph.Node, p int) []*graph.Node {
		big := graph.ConstTensor(rc.Graph(), tensors.FromScalarAndDimensions(float32(0.5), 256, 512))
		other := make([]int32, 1<<16)
		for i := range other {
			other[i] = int32(i % 3)
		}
		return []*graph.Node{graph.ReduceAllSum(logical.Split(big, 1, p)), graph.ReduceAllSum(graph.Const(rc.Graph(), other))}
	}, func(int, int) []any { return []any{float32(1 << 16), int32(1<<16 - 1)} }},
	{"complex numbers in a region", func(rc *strategy.ReplicaContext, x, _ *graph.Node, p int) []*graph.Node {
		y := logical.On(p-1, graph.Complex(x, graph.ZerosLike(x)), func(z *graph.Node) *graph.Node { return graph.Mul(z, z) })
		return []*graph.Node{graph.Real(logical.Replicate(y))}
	}, func(r, _ int) []any {
		v := ramp(r)
		for i := range v {
			v[i] *= v[i]
		}
		return []any{v}
	}},
}

func TestOddStepsRun(t *testing.T) {
	ctx := context.Background()
	sys := plugintest.System(t, 4)
	for _, mesh := range [][2]int{{1, 1}, {2, 1}, {1, 4}, {2, 2}} {
		s, err := strategy.New(sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
		require.NoError(t, err)
		defer s.Close()
		each := make([]any, mesh[0])
		for r := range each {
			each[r] = ramp(r)
		}
		x, err := s.PerReplica(ctx, each, logical.Annotation{})
		require.NoError(t, err)
		for _, c := range oddCases {
			t.Run(fmt.Sprintf("%s on %dx%d", c.name, mesh[0], mesh[1]), func(t *testing.T) {
				f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
					return c.step(rc, in[0], in[1], mesh[1])
				}, strategy.FunctionOptions{Name: c.name})
				out, err := f.Run(ctx, x, int32(7), []float64{1, 2}) // the last one is not used
				require.NoError(t, err)
				for r := range mesh[0] {
					want := c.want(r, mesh[0])
					require.Len(t, out, len(want))
					for i, value := range out {
						got, err := value.Local(ctx, r)
						require.NoError(t, err)
						assert.Equal(t, want[i], got.Value(), "result %d of replica %d", i, r)
					}
				}
			})
		}
	}
}

// A name in a step may be any text.
func TestOddNames(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2, strategy.Options{Variables: logical.Rules{logical.Match(`weights`, logical.SplitInto(2, 1))}})
	for _, name := range []string{"main", "step", "region_0", "replica_id", "argument_0", "mesh", "a b", `quote"s`, "new\nline", "ünïcode", "%0", "@x", "#1", "distributed_0", "-", "1"} {
		t.Run(name, func(t *testing.T) {
			store := model.NewStore()
			f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				scope := rc.Scope(name).At("%s", name).At("weights")
				w := scope.VariableWithValue("value", [][]float32{{1, 2}, {3, 4}})
				y := graph.Add(in[0], w.NodeValue(rc.Graph()))
				w.SetNodeValue(y)
				inner := graph.NewFunction(rc.Graph(), name+"_function", func(g *graph.Graph) []*graph.Node {
					z := graph.Parameter(g, name, shapes.Make(dtypes.Float32, 2, 2))
					return []*graph.Node{graph.Neg(z)}
				})
				return append(inner.Call(y), logical.On(1, y, graph.Neg), graph.ConvertDType(rc.ReplicaIDInSyncGroup(), dtypes.Int64))
			}, strategy.FunctionOptions{Name: name, Store: store})
			for i := range 2 {
				out, err := f.Run(ctx, tensors.FromScalarAndDimensions(float32(1), 2, 2))
				require.NoError(t, err)
				for _, value := range out[:2] {
					got, err := value.Local(ctx, 1)
					require.NoError(t, err)
					d := float32(i)
					assert.Equal(t, [][]float32{{-2 - d, -3 - d}, {-4 - d, -5 - d}}, got.Value())
				}
				id, err := out[2].Local(ctx, 1)
				require.NoError(t, err)
				assert.Equal(t, int64(1), id.Value())
			}
		})
	}
}

// What cannot be lowered is an error of the trace, and leaves the strategy whole.
func TestOddStepsAreRefused(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	function := func(g *graph.Graph, name string, body func(y *graph.Node) *graph.Node) *graph.Function {
		return graph.NewFunction(g, name, func(g *graph.Graph) []*graph.Node {
			return []*graph.Node{body(graph.Parameter(g, "y", shapes.Make(dtypes.Float32, 4)))}
		})
	}
	for name, step := range map[string]func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node{
		"a function named step": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return function(rc.Graph(), "step", graph.Neg).Call(x)
		},
		"a function named main": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return function(rc.Graph(), "main", graph.Neg).Call(x)
		},
		"a function named as a region": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return function(rc.Graph(), "region_0", graph.Neg).Call(logical.On(0, x, graph.Neg))
		},
		"a region in a function": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return function(rc.Graph(), "f", func(y *graph.Node) *graph.Node { return logical.On(0, y, graph.Neg) }).Call(x)
		},
		"a region that reads a function's parameter": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			var inner *graph.Node
			function(rc.Graph(), "f", func(y *graph.Node) *graph.Node { inner = y; return graph.Neg(y) })
			return []*graph.Node{logical.On(0, x, func(x *graph.Node) *graph.Node { return graph.Add(x, inner) })}
		},
		"a function with an annotation that is called in a region": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			f := function(rc.Graph(), "f", func(y *graph.Node) *graph.Node { return logical.Split(graph.Neg(y), 2) })
			return []*graph.Node{logical.On(0, x, func(x *graph.Node) *graph.Node { return f.Call(x)[0] })}
		},
		"a function with a collective that is called in a region": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			f := function(rc.Graph(), "f", func(y *graph.Node) *graph.Node { return rc.AllReduce(strategy.Sum, y) })
			return []*graph.Node{logical.On(0, x, func(x *graph.Node) *graph.Node { return f.Call(x)[0] })}
		},
		"a parameter of its own": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(x, graph.Parameter(rc.Graph(), "mine", x.Shape()))}
		},
		"a nil node": func(_ *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return []*graph.Node{logical.Split(nil, 2), x}
		},
		"a region of nil": func(_ *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return logical.OnMany(0, []*graph.Node{nil}, func(in []*graph.Node) []*graph.Node { return in })
		},
		"a region without a function": func(_ *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return logical.OnMany(0, []*graph.Node{x}, nil)
		},
		"a region that panics": func(_ *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return []*graph.Node{logical.On(0, x, func(*graph.Node) *graph.Node { panic("no") })}
		},
		"splits that do not agree": func(_ *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return []*graph.Node{logical.Split(x, 4)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node { return step(rc, in[0]) },
				strategy.FunctionOptions{}).Run(ctx, []float32{1, 2, 3, 4})
			var trace *strategy.TraceError
			require.ErrorAs(t, err, &trace)
			t.Log(err)
		})
	}
}

// Dropout draws from the store's one random state: replicas of one step share the
// mask, steps do not.
func TestReplicasShareDropoutMasks(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	store := model.NewStore()
	require.NoError(t, store.SetRNGStateFromSeed(3))
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{layers.DropoutStatic(rc.Scope(), logical.Split(in[0], 2), 0.5)}
	}, strategy.FunctionOptions{Store: store, Training: true})
	var masks [][]float32
	for range 2 {
		out, err := f.Run(ctx, tensors.FromScalarAndDimensions(float32(1), 64))
		require.NoError(t, err)
		first, err := out[0].Local(ctx, 0)
		require.NoError(t, err)
		second, err := out[0].Local(ctx, 1)
		require.NoError(t, err)
		assert.True(t, first.Equal(second))
		masks = append(masks, first.Value().([]float32))
	}
	assert.NotEqual(t, masks[0], masks[1])
	assert.Contains(t, masks[0], float32(0))
	assert.Contains(t, masks[0], float32(2))
}

// With numbers of their own, replicas have masks of their own: the logical devices of
// a replica the same, each step others, and the store's state stays one. Other
// replicas do not change what a replica draws.
func TestReplicasDrawRandomNumbersOfTheirOwn(t *testing.T) {
	ctx := context.Background()
	masks := func(replicas, logicalDevices int, loop bool) (all [][]float32) {
		s := strategytest.New(t, replicas, logicalDevices)
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(3))
		f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			rc.OwnRandomNumbers()
			rc.OwnRandomNumbers()
			x := logical.Split(graph.OnesLike(graph.BroadcastPrefix(graph.ReduceAllMean(in[0]), 64)), logicalDevices)
			return []*graph.Node{layers.DropoutStatic(rc.Scope(), layers.DropoutStatic(rc.Scope(), x, 0.5), 0.5)}
		}, strategy.FunctionOptions{Store: store, Training: true})
		for range 3 {
			arg := any(float32(1))
			if loop {
				stacked, err := s.StackBatches(ctx, []any{make([]float32, replicas), make([]float32, replicas)}, logical.Annotation{})
				require.NoError(t, err)
				arg = stacked
			}
			out, err := f.Run(ctx, arg)
			require.NoError(t, err)
			for r := range replicas {
				mask, err := out[0].Local(ctx, r)
				require.NoError(t, err)
				all = append(all, mask.Value().([]float32))
			}
		}
		state, ok := s.Variables(store).Lookup("/" + model.RNGStateVariableName)
		require.True(t, ok)
		first, err := state.Local(ctx, 0)
		require.NoError(t, err)
		for r := range replicas {
			other, err := state.Local(ctx, r)
			require.NoError(t, err)
			assert.True(t, first.Equal(other), "replica %d", r)
		}
		return all
	}
	for _, loop := range []bool{false, true} {
		got := masks(4, 2, loop)
		for i, mask := range got {
			for j := range i {
				assert.NotEqual(t, mask, got[j], "%d %d", i, j)
			}
			zeros := 0
			for _, x := range mask {
				if x == 0 {
					zeros++
				}
			}
			assert.InDelta(t, 48, zeros, 14, "a share of 3/4")
		}
		pair := masks(2, 1, loop)
		for step := range 3 {
			assert.Equal(t, got[4*step:4*step+2], pair[2*step:2*step+2], "step %d", step)
		}
	}
}

func TestRandomNumbersAreSplitFirst(t *testing.T) {
	s := strategytest.New(t, 2, 1)
	for name, store := range map[string]*model.Store{"drawn before": model.NewStore(), "no store": nil} {
		_, err := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
			if store != nil {
				in[0] = layers.DropoutStatic(rc.Scope(), in[0], 0.5)
			}
			rc.OwnRandomNumbers()
			return in
		}, strategy.FunctionOptions{Store: store, Training: true}).Run(context.Background(), []float32{1, 2})
		var trace *strategy.TraceError
		require.ErrorAs(t, err, &trace, name)
		t.Log(err)
	}
}

// Batch normalisation keeps running averages: those of the replicas' batches are
// averaged.
func TestReplicasShareTheAveragesOfBatchNormalisation(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 2)
	store := model.NewStore()
	f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
		return []*graph.Node{norm.BatchNorm(rc.Scope("norm"), logical.Split(in[0], 1, 2), -1).Done()}
	}, strategy.FunctionOptions{Store: store, Training: true})
	x, err := s.PerReplica(ctx, []any{[][]float32{{1, 2}, {3, 4}}, [][]float32{{5, 6}, {9, 10}}}, logical.Annotation{})
	require.NoError(t, err)
	for range 3 {
		_, err = f.Run(ctx, x)
		require.NoError(t, err)
	}
	want := map[string][]float32{"mean": {4.5, 5.5}, "variance": {2.5, 2.5}}
	for name, want := range want {
		v, ok := s.Variables(store).Lookup("/norm/batch_normalization/" + name)
		require.True(t, ok)
		for r := range 2 {
			got, err := v.Local(ctx, r)
			require.NoError(t, err)
			assert.InDeltaSlice(t, want, got.Value(), 1e-5, "%s of replica %d", name, r)
		}
	}
}

func TestReplicasMayNotWriteTheirOwnToWhatAllShare(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 2, 1)
	for name, c := range map[string]struct {
		initial any
		value   func(rc *strategy.ReplicaContext, x, w *graph.Node) *graph.Node
		fails   bool
	}{
		"its own": {[]float32{1, 2}, func(_ *strategy.ReplicaContext, x, w *graph.Node) *graph.Node { return graph.Add(x, w) }, true},
		"its own integer": {[]int32{1, 2}, func(_ *strategy.ReplicaContext, x, w *graph.Node) *graph.Node {
			return graph.ConvertDType(x, dtypes.Int32)
		}, true},
		"its number": {[]int32{1, 2}, func(rc *strategy.ReplicaContext, _, w *graph.Node) *graph.Node {
			return graph.Add(w, rc.ReplicaIDInSyncGroup())
		}, true},
		"what is reduced": {[]float32{1, 2}, func(rc *strategy.ReplicaContext, x, w *graph.Node) *graph.Node {
			return graph.Add(rc.AllReduce(strategy.Sum, x), w)
		}, false},
		"what all have":     {[]int32{1, 2}, func(_ *strategy.ReplicaContext, _, w *graph.Node) *graph.Node { return graph.Add(w, w) }, false},
		"what it broadcast": {[]float32{1, 2}, func(rc *strategy.ReplicaContext, x, _ *graph.Node) *graph.Node { return rc.Broadcast(x) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			store := model.NewStore()
			f := s.Function(func(rc *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
				w := rc.Scope().VariableWithValue("w", c.initial)
				w.SetNodeValue(c.value(rc, in[0], w.NodeValue(rc.Graph())))
				return in
			}, strategy.FunctionOptions{Store: store})
			x, err := s.PerReplica(ctx, []any{[]float32{1, 2}, []float32{3, 4}}, logical.Annotation{})
			require.NoError(t, err)
			_, err = f.Run(ctx, x)
			if c.fails {
				require.ErrorContains(t, err, `variable "/w"`)
				assert.Equal(t, strategy.ValueError, strategy.KindOf(err))
				return
			}
			require.NoError(t, err)
		})
	}
}

// The TPU compiler takes the replicas' own generators, in a model with dropout.
func TestAOTStepsDrawRandomNumbersOfTheirOwn(t *testing.T) {
	if !plugintest.TPUChild(t) {
		return
	}
	strat := strategytest.Ahead(t, "v5e:2x4", strategy.Options{Replicas: 4, LogicalDevices: 2})
	store := model.NewStore()
	step := train.New(strat, store, optimizer.Adam().Done(), func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
		rc.OwnRandomNumbers()
		h := logical.Split(layers.Dense(rc.Scope("hidden"), in[0], true, 256), 1, 2)
		h = layers.DropoutStatic(rc.Scope("dropout"), h, 0.5)
		return graph.ReduceAllMean(graph.Square(graph.Sub(layers.Dense(rc.Scope("output"), h, true, 1), in[1])))
	})
	x, y := strategytest.BatchShapes(64)
	compiled, err := step.Compiled(context.Background(), x, y)
	require.NoError(t, err)
	assert.Contains(t, string(compiled.Module.Text), "rng_bit_generator")
}
