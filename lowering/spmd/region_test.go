//go:build cgo

package spmd_test

import (
	"errors"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

// onTwo runs a step of x = [1 2 3 4] and w = [5 6 7 8] on one replica of two logical
// devices.
func onTwo(t *testing.T, results int, step func(x, w *graph.Node) []*graph.Node) [][]float32 {
	t.Helper()
	m := build(t, spmd.Options{LogicalDevices: 2, Target: lowering.TargetCPU}, spmd.Signature{
		Arguments: make([]spmd.Tensor, 2), Results: make([]spmd.Tensor, results),
	}, func(g *graph.Graph) []*graph.Node { return step(param(g, "x", 4), param(g, "w", 4)) })
	return run(t, m, []float32{1, 2, 3, 4}, []float32{5, 6, 7, 8})
}

func TestARegionThatReturnsAVariableKeepsItsGradient(t *testing.T) {
	out := onTwo(t, 3, func(x, w *graph.Node) []*graph.Node {
		y := logical.OnDeviceMany(1, []*graph.Node{x}, func(in []*graph.Node) []*graph.Node {
			return []*graph.Node{w,
				in[0]}
		})
		by := graph.Gradient(graph.ReduceAllSum(graph.Mul(y[0], y[1])), w, x)
		return []*graph.Node{y[0], by[0], by[1]}
	})
	assert.Equal(t, [][]float32{{5, 6, 7, 8}, {1, 2, 3, 4}, {5, 6, 7, 8}}, out)
}

func TestARegionMayHoldClosures(t *testing.T) {
	out := onTwo(t, 2, func(x, w *graph.Node) []*graph.Node {
		y := logical.OnDevice(1, x, func(x *graph.Node) *graph.Node {
			falling := graph.Sort(graph.StopGradient(x), 0, false)
			cond := graph.NewClosure(x.Graph(), func(g *graph.Graph) []*graph.Node {
				count := graph.Parameter(g, "count", shapes.Make(dtypes.Int32))
				_ = graph.Parameter(g, "sum", shapes.Make(dtypes.Float32, 4))
				return []*graph.Node{graph.LessThan(count, graph.Const(g, int32(3)))}
			})
			body := graph.NewClosure(x.Graph(), func(g *graph.Graph) []*graph.Node {
				count := graph.Parameter(g, "count", shapes.Make(dtypes.Int32))
				sum := graph.Parameter(g, "sum", shapes.Make(dtypes.Float32, 4))
				return []*graph.Node{graph.Add(count, graph.Const(g, int32(1))), graph.Add(sum, w)}
			})
			threeW := graph.While(cond, body, graph.Const(x.Graph(), int32(0)), graph.StopGradient(falling))[1]
			return graph.Mul(x, graph.StopGradient(threeW))
		})
		return []*graph.Node{y, graph.Gradient(graph.ReduceAllSum(y), x)[0]}
	})
	assert.Equal(t, [][]float32{{19, 42, 69, 100}, {19, 21, 23, 25}}, out)
}

func TestARegionRefusesWhatWouldLoseItsGradient(t *testing.T) {
	for name, c := range map[string]struct {
		step func(x *graph.Node)
		want string
	}{
		"a result that is a node from outside": {func(x *graph.Node) {
			y := graph.Exp(x)
			logical.OnDevice(0, x, func(*graph.Node) *graph.Node { return y })
		}, "pass it to OnDeviceMany as an argument"},
		"a second derivative": {func(x *graph.Node) {
			y := logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return graph.Mul(x, graph.Mul(x, x)) })
			first := graph.Gradient(graph.ReduceAllSum(y), x)[0]
			graph.Gradient(graph.ReduceAllSum(first), x)
		}, "a second derivative"},
		"a second derivative by what was above the region": {func(x *graph.Node) {
			y := logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return graph.MulScalar(x, 3) })
			z := graph.Mul(y, graph.Mul(y, y))
			first := graph.Gradient(graph.ReduceAllSum(z), x)[0]
			graph.Gradient(graph.ReduceAllSum(first), x)
		}, "a second derivative"},
	} {
		t.Run(name, func(t *testing.T) {
			g := graph.NewGraph(spmd.NewTrace(spmd.Options{LogicalDevices: 2}), "step")
			x := param(g, "x", 4)
			err := caught(func() { c.step(x) })
			require.ErrorContains(t, err, c.want)
			var placement *logical.Error
			assert.ErrorAs(t, err, &placement)
		})
	}
}

func TestNilIsRefused(t *testing.T) {
	g := graph.NewGraph(spmd.NewTrace(spmd.Options{LogicalDevices: 2}), "step")
	x := param(g, "x", 4)
	for name, call := range map[string]func(){
		"split":     func() { logical.Split(nil, 2) },
		"replicate": func() { logical.Replicate(nil) },
		"on":        func() { logical.OnDevice(0, nil, graph.Neg) },
		"on many": func() {
			logical.OnDeviceMany(0, []*graph.Node{x, nil}, func(in []*graph.Node) []*graph.Node { return in })
		},
		"on without function": func() { logical.OnDevice(0, x, nil) },
		"all-reduce":          func() { spmd.AllReduce(nil, spmd.Sum) },
		"all-gather":          func() { spmd.AllGather(nil, 0) },
	} {
		err := caught(call)
		var placement *logical.Error
		assert.True(t, errors.As(err, &placement) || errkind.KindOf(err) == errkind.InvalidArgumentError, "%s: %v", name, err)
	}
}

func TestARegionRefusesCallsThatAllDevicesMake(t *testing.T) {
	inner := map[string]func(y *graph.Node) *graph.Node{
		"annotation": func(y *graph.Node) *graph.Node { return logical.Split(y, 2) },
		"collective": func(y *graph.Node) *graph.Node { return spmd.AllReduce(y, spmd.Sum) },
		"nothing":    graph.Neg,
	}
	for name, body := range inner {
		tr := spmd.NewTrace(spmd.Options{Replicas: 2, LogicalDevices: 2})
		g := graph.NewGraph(tr, "step")
		x := param(g, "x", 4)
		f := graph.NewFunction(g, "region_0_f",
			func(g *graph.Graph) []*graph.Node { return []*graph.Node{body(param(g, "y", 4))} })
		outer := graph.NewFunction(g, "outer", func(g *graph.Graph) []*graph.Node { return f.Call(param(g, "z", 4)) })
		require.NoError(t, g.Compile(logical.OnDevice(1, x, func(x *graph.Node) *graph.Node { return outer.Call(x)[0] })))
		_, err := tr.Module(g, spmd.Signature{Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 1)})
		if name == "nothing" {
			require.NoError(t, err)
			continue
		}
		var placement *logical.Error
		require.ErrorAs(t, err, &placement)
		assert.ErrorContains(t, err, `the region calls function "outer", which contains an annotation or a collective`)
	}
}

func TestEmptyTensorsCrossRegions(t *testing.T) {
	m := build(t, spmd.Options{LogicalDevices: 2, Target: lowering.TargetCPU}, spmd.Signature{
		Arguments: make([]spmd.Tensor, 2), Results: make([]spmd.Tensor, 3),
	}, func(g *graph.Graph) []*graph.Node {
		x, e := param(g, "x", 4), param(g, "e", 4, 0)
		y := logical.OnDeviceMany(1, []*graph.Node{x, e}, func(in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Add(in[0], graph.ReduceSum(in[1], 1)), graph.Add(in[1], in[1])}
		})
		z := logical.OnDeviceMany(1, []*graph.Node{y[0], logical.Assign(y[1], 0)}, func(in []*graph.Node) []*graph.Node {
			return []*graph.Node{graph.Neg(in[0]), in[1]}
		})
		return []*graph.Node{z[0], z[1], y[1]}
	})
	assert.Equal(t, [][]float32{{-1, -2, -3, -4}, nil, nil}, emptied(run(t, m, []float32{1, 2, 3, 4}, nil)))
}

func TestAResultIsSplitUnlikeTheOpThatMadeIt(t *testing.T) {
	// If the step does not constrain the result, the compiler aborts the process at the border of
	// the manual computation.
	rows, columns := logical.SplitInto(4, 1, 1, 1), logical.SplitInto(1, 1, 2, 2)
	m := build(t, spmd.Options{Replicas: 2, LogicalDevices: 4, Target: lowering.TargetCPU}, spmd.Signature{
		Arguments: []spmd.Tensor{{Annotation: columns, Donated: true, Result: 1}},
		Results:   []spmd.Tensor{{PerReplica: true}, {Annotation: columns}},
	}, func(g *graph.Graph) []*graph.Node {
		y := logical.Apply(graph.Neg(param(g, "x", 8, 8, 2, 4)), rows)
		return []*graph.Node{y, y}
	})
	in := count(8 * 8 * 2 * 4)
	out := run(t, m, in)
	for i, v := range in {
		in[i] = -v
	}
	assert.Equal(t, [][]float32{append(in, in...), in}, out)
}

func TestCollectivesOfEmptyTensorsAreEmpty(t *testing.T) {
	m := build(t, spmd.Options{Replicas: 2, Target: lowering.TargetCPU}, spmd.Signature{
		Arguments: []spmd.Tensor{{PerReplica: true}}, Results: make([]spmd.Tensor, 4),
	}, func(g *graph.Graph) []*graph.Node {
		x := param(g, "x", 2, 0)
		return []*graph.Node{spmd.AllReduce(x, spmd.Sum), spmd.AllGather(x, 0), spmd.AllGather(x, 1),
			spmd.ReduceScatter(x, 0)}
	})
	for i, dims := range [][]int{{2, 0}, {4, 0}, {2, 0}, {1, 0}} {
		assert.Equal(t, dims, m.Results[i].LocalDims)
	}
	assert.Equal(t, make([][]float32, 4), emptied(run(t, m, nil)))
}

func emptied(all [][]float32) [][]float32 {
	for i := range all {
		if len(all[i]) == 0 {
			all[i] = nil
		}
	}
	return all
}

func TestARegionThatPanicsIsClosed(t *testing.T) {
	m := build(t, spmd.Options{LogicalDevices: 2, Target: lowering.TargetCPU}, spmd.Signature{
		Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 2),
	}, func(g *graph.Graph) []*graph.Node {
		x := param(g, "x", 4)
		cause := errors.New("no second layer")
		assert.Same(t, cause, caught(func() {
			logical.OnDevice(1, x, func(x *graph.Node) *graph.Node {
				graph.Exp(x)
				panic(cause)
			})
		}))
		assert.ErrorContains(t, caught(func() {
			logical.OnDevice(0, x, func(x *graph.Node) *graph.Node {
				return logical.OnDevice(1, x, func(x *graph.Node) *graph.Node { return x })
			})
		}), "inside another region")
		y := logical.Split(graph.Neg(x), 2)
		return []*graph.Node{y, logical.OnDevice(1, y, func(y *graph.Node) *graph.Node { return graph.Add(y, y) })}
	})
	assert.Equal(t, [][]float32{{-1, -2, -3, -4}, {-2, -4, -6, -8}}, run(t, m, []float32{1, 2, 3, 4}))
}
