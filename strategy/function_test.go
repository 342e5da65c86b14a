package strategy_test

import (
	"bytes"
	"context"
	"fmt"
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

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/strategytest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/strategy"
	"github.com/tpustrategy/tpustrategy/strategy/stepfile"
	"github.com/tpustrategy/tpustrategy/strategy/train"
)

func TestShapesAreForLoweringNotForRunning(t *testing.T) {
	ctx := context.Background()
	s := strategytest.New(t, 1, 1)
	train := strategytest.OK(train.New(s, model.NewStore(), optimizer.StochasticGradientDescent().Done(),
		func(rc *strategy.ReplicaContext, in []*graph.Node) *graph.Node {
			return graph.ReduceAllMean(layers.Dense(rc.Scope("a"), in[0], true, 2))
		}, train.Options{}))
	_, err := train.Run(ctx, shapes.Make(dtypes.Float32, 1, 1))
	var wrong *strategy.ArgumentError
	require.ErrorAs(t, err, &wrong)
	assert.Zero(t, wrong.Argument)
}

// The same holds for a plain function, bound or in a loop of steps.
func TestAFunctionMayGiveNothing(t *testing.T) {
	ctx := context.Background()
	strategytest.OnMeshes(t, strategytest.Meshes, func(t *testing.T, s *strategy.TPUStrategy) {
		traced := 0
		f := s.Function(func(*strategy.ReplicaContext, []*graph.Node) []*graph.Node {
			traced++
			return nil
		}, strategy.FunctionOptions{})
		for range 2 {
			out, err := f.Run(ctx)
			require.NoError(t, err)
			require.Empty(t, out)
		}
		require.Equal(t, 1, traced)
		rows := [][]float32{{1, 2}, {3, 4}, {5, 6}, {7, 8}}
		steps, err := s.StackBatches(ctx, []any{rows, rows, rows}, logical.Annotation{})
		require.NoError(t, err)
		out, err := f.Run(ctx, steps)
		require.NoError(t, err)
		require.Empty(t, out)
		b, err := f.Bind(ctx, rows)
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, b.Launch(ctx))
			require.Empty(t, b.Results())
		}
		require.NoError(t, b.Close())
		// Also if the step is loaded from a file.
		c, err := f.Compiled(ctx, rows)
		require.NoError(t, err)
		var file bytes.Buffer
		require.NoError(t, stepfile.Save(t.Context(), &file, c))
		loaded, err := stepfile.Load(ctx, s, &file, nil)
		require.NoError(t, err)
		out, err = loaded.Run(ctx, rows)
		require.NoError(t, err)
		require.Empty(t, out)
		// The arguments are still checked.
		x, err := s.Mirror(ctx, rows, logical.Annotation{})
		require.NoError(t, err)
		require.NoError(t, x.Close())
		_, err = f.Run(ctx, x)
		require.ErrorIs(t, err, strategy.ErrClosed)
	})
}

// oddCase is a valid but unusual step. x is [1 2 3 4] on replica 0, and 4 more on each following
// replica. n is 7 as int32 on all replicas.
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
		return []*graph.Node{graph.Const(rc.Graph(), float32(3)), graph.Const(rc.Graph(), []int64{1, 2}),
			graph.Const(rc.Graph(), true)}
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
		return []*graph.Node{logical.Split(graph.Const(rc.Graph(), []float32{1, 2, 3, 4}), p),
			logical.Assign(graph.Const(rc.Graph(), int8(-1)), p-1)}
	}, func(int, int) []any { return []any{[]float32{1, 2, 3, 4}, int8(-1)} }},
	{"many annotations of one value", func(_ *strategy.ReplicaContext, x, _ *graph.Node, p int) []*graph.Node {
		for range 20 {
			x = logical.Replicate(logical.Split(logical.Assign(x, p/2), p))
		}
		return []*graph.Node{x}
	}, func(r, _ int) []any { return []any{ramp(r)} }},
	{"a region of constants", func(rc *strategy.ReplicaContext, x, _ *graph.Node, p int) []*graph.Node {
		return logical.OnDeviceMany(p-1, []*graph.Node{x}, func([]*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Const(rc.Graph(), float32(2)), graph.Const(rc.Graph(), []int32{5})}
		})
	}, func(int, int) []any { return []any{float32(2), []int32{5}} }},
	{"a region that returns its argument and a constant from outside", func(rc *strategy.ReplicaContext, x, n *graph.Node,
		p int) []*graph.Node {
		c := graph.Const(rc.Graph(), []bool{true, false})
		return logical.OnDeviceMany(0, []*graph.Node{x, n, x},
			func(in []*graph.Node) []*graph.Node { return []*graph.Node{in[2], c, in[1], in[2]} })
	}, func(r, _ int) []any { return []any{ramp(r), []bool{true, false}, int32(7), ramp(r)} }},
	{"a chain of regions that keep scalars", func(_ *strategy.ReplicaContext, _, n *graph.Node, p int) []*graph.Node {
		for i := range 12 {
			n = logical.OnDevice(i/3%p, n, func(n *graph.Node) *graph.Node { return graph.Add(n, n) })
		}
		return []*graph.Node{n}
	}, func(int, int) []any { return []any{int32(7 << 12)} }},
	{"regions whose results nobody reads", func(_ *strategy.ReplicaContext, x, n *graph.Node, p int) []*graph.Node {
		y := logical.OnDevice(0, x, graph.Exp)
		logical.OnDevice(p-1, y, graph.Exp)
		return []*graph.Node{n}
	}, func(int, int) []any { return []any{int32(7)} }},
	{"a collective between regions of one device", func(rc *strategy.ReplicaContext, x, _ *graph.Node,
		p int) []*graph.Node {
		y := logical.OnDevice(p-1, x, func(x *graph.Node) *graph.Node { return graph.MulScalar(x, 2) })
		y = rc.AllReduce(strategy.Mean, y)
		return []*graph.Node{logical.OnDevice(p-1, y, func(y *graph.Node) *graph.Node { return graph.AddScalar(y, 1) })}
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
	{"a function that is called in a region and holds an annotation", func(rc *strategy.ReplicaContext, x, _ *graph.Node,
		p int) []*graph.Node {
		double := graph.NewFunction(rc.Graph(), "double", func(g *graph.Graph) []*graph.Node {
			y := graph.Parameter(g, "y", shapes.Make(dtypes.Float32, 4))
			return []*graph.Node{graph.Add(y, y)}
		})
		return []*graph.Node{logical.OnDevice(p-1, x, func(x *graph.Node) *graph.Node { return double.Call(x)[0] })}
	}, func(r, _ int) []any {
		v := ramp(r)
		for i := range v {
			v[i] *= 2
		}
		return []any{v}
	}},
	{"a sort beside a region", func(_ *strategy.ReplicaContext, x, _ *graph.Node, p int) []*graph.Node {
		y := logical.OnDevice(p-1, x, func(x *graph.Node) *graph.Node { return graph.Sort(x, 0, false) })
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
		y := logical.OnDevice(p-1, graph.Complex(x, graph.ZerosLike(x)), func(z *graph.Node) *graph.Node {
			return graph.Mul(z,
				z)
		})
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
		s := strategytest.On(t, sys, strategy.Options{Replicas: mesh[0], LogicalDevices: mesh[1]})
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
				out, err := f.Run(ctx, x, int32(7), []float64{1, 2}) // the last argument is not used
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
	s := strategytest.New(t, 2, 2, strategy.Options{Variables: logical.Rules{logical.Match(`weights`,
		logical.SplitInto(2, 1))}})
	for _, name := range []string{"main", "step", "region_0", "replica_id", "argument_0", "mesh", "a b", `quote"s`,
		"new\nline", "ünïcode", "%0", "@x", "#1", "distributed_0", "-", "1"} {
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
				return append(inner.Call(y), logical.OnDevice(1, y, graph.Neg), graph.ConvertDType(rc.ReplicaIDInSyncGroup(),
					dtypes.Int64))
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

// A step that cannot be lowered is an error of the trace. The strategy stays usable.
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
			return function(rc.Graph(), "region_0", graph.Neg).Call(logical.OnDevice(0, x, graph.Neg))
		},
		"a region in a function": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return function(rc.Graph(), "f", func(y *graph.Node) *graph.Node { return logical.OnDevice(0, y, graph.Neg) }).Call(
				x)
		},
		"a region that reads a function's parameter": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			var inner *graph.Node
			function(rc.Graph(), "f", func(y *graph.Node) *graph.Node { inner = y; return graph.Neg(y) })
			return []*graph.Node{logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return graph.Add(x, inner) })}
		},
		"a function with an annotation that is called in a region": func(rc *strategy.ReplicaContext,
			x *graph.Node) []*graph.Node {
			f := function(rc.Graph(), "f", func(y *graph.Node) *graph.Node { return logical.Split(graph.Neg(y), 2) })
			return []*graph.Node{logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return f.Call(x)[0] })}
		},
		"a function with a collective that is called in a region": func(rc *strategy.ReplicaContext,
			x *graph.Node) []*graph.Node {
			f := function(rc.Graph(), "f", func(y *graph.Node) *graph.Node { return rc.AllReduce(strategy.Sum, y) })
			return []*graph.Node{logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return f.Call(x)[0] })}
		},
		"a parameter of its own": func(rc *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(x, graph.Parameter(rc.Graph(), "mine", x.Shape()))}
		},
		"a nil node": func(_ *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return []*graph.Node{logical.Split(nil, 2), x}
		},
		"a region of nil": func(_ *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return logical.OnDeviceMany(0, []*graph.Node{nil}, func(in []*graph.Node) []*graph.Node { return in })
		},
		"a region without a function": func(_ *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return logical.OnDeviceMany(0, []*graph.Node{x}, nil)
		},
		"a region that panics": func(_ *strategy.ReplicaContext, x *graph.Node) []*graph.Node {
			return []*graph.Node{logical.OnDevice(0, x, func(*graph.Node) *graph.Node { panic("no") })}
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

func double(_ *strategy.ReplicaContext, in []*graph.Node) []*graph.Node {
	return []*graph.Node{graph.MulScalar(in[0], 2)}
}
