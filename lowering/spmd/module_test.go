package spmd_test

import (
	"errors"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
)

func build(t *testing.T, opts spmd.Options, sig spmd.Signature, step func(g *graph.Graph) []*graph.Node) *spmd.Module {
	t.Helper()
	tr := spmd.NewTrace(opts)
	g := graph.NewGraph(tr, "step")
	require.NoError(t, g.Compile(step(g)...))
	m, err := tr.Module(g, sig)
	require.NoError(t, err)
	return m
}

func param(g *graph.Graph, name string, dims ...int) *graph.Node {
	return graph.Parameter(g, name, shapes.Make(dtypes.Float32, dims...))
}

// caught runs f and returns the error of its panic.
func caught(f func()) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	f()
	return nil
}

func TestNodeFunctionsRefuseWhatCannotBePlaced(t *testing.T) {
	opts := spmd.Options{Replicas: 2, LogicalDevices: 4}
	identity := func(x *graph.Node) *graph.Node { return graph.Neg(x) }
	for name, c := range map[string]struct {
		step func(x *graph.Node)
		want string
	}{
		"assign to a device that is not there": {func(x *graph.Node) { logical.Assign(x, 4) }, "use a number from 0 to 3"},
		"assign to a negative device":          {func(x *graph.Node) { logical.Assign(x, -1) }, "use a number from 0 to 3"},
		"split with too few parts":             {func(x *graph.Node) { logical.Split(x, 4) }, "pass 2 numbers"},
		"split an indivisible dimension": {func(x *graph.Node) { logical.Split(x, 1, 4) },
			"dimension 1 of size 6 is not divisible into 4 parts; pad the dimension to 8"},
		"split into a wrong product": {func(x *graph.Node) { logical.Split(x, 2, 1) },
			"is 2, but there are 4 logical devices"},
		"split into zero parts": {func(x *graph.Node) { logical.Split(x, 0, 4) },
			"use 1 for a dimension that is not split"},
		"split into negative parts": {func(x *graph.Node) { logical.Split(x, -2, -2) },
			"dimension 0 is split into -2 parts"},
		"run on a device that is not there": {func(x *graph.Node) { logical.OnDevice(7, x, identity) },
			"use a number from 0 to 3"},
		"a region in a region": {func(x *graph.Node) {
			logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return logical.OnDevice(1, x, identity) })
		}, "inside another region"},
		"an annotation in a region": {func(x *graph.Node) {
			logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return logical.Replicate(x) })
		}, "annotate before or after the OnDevice region"},
		"a collective in a region": {func(x *graph.Node) {
			logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return spmd.AllReduce(x, spmd.Sum) })
		}, "call it before or after the OnDevice region"},
		"a region that reads a node from outside": {func(x *graph.Node) {
			y := graph.Exp(x)
			logical.OnDevice(0, x, func(x *graph.Node) *graph.Node { return graph.Add(x, y) })
		}, "pass it to OnDeviceMany as an argument"},
		"a region without results": {func(x *graph.Node) {
			logical.OnDeviceMany(0, []*graph.Node{x}, func([]*graph.Node) []*graph.Node { return nil })
		}, "return at least one node"},
		"a region without arguments": {func(x *graph.Node) { logical.OnDeviceMany(0, nil, nil) },
			"pass the nodes that the region reads"},
		"a region that returns nil": {func(x *graph.Node) {
			logical.OnDevice(0, x, func(*graph.Node) *graph.Node { return nil })
		}, "result 0 is not a node of this graph"},
		"scatter an indivisible dimension": {func(x *graph.Node) {
			spmd.ReduceScatter(graph.Slice(x, graph.AxisRange(0, 3)),
				0)
		}, "size 3 is not divisible by 2 replicas"},
		"gather an axis that is not there": {func(x *graph.Node) { spmd.AllGather(x, 2) }, "axis 2 of a tensor of rank 2"},
		"the gradient of a maximum": {func(x *graph.Node) {
			graph.Gradient(graph.ReduceAllSum(spmd.AllReduce(x, spmd.Max)), x)
		}, "only the sum has a gradient"},
	} {
		t.Run(name, func(t *testing.T) {
			g := graph.NewGraph(spmd.NewTrace(opts), "step")
			x := param(g, "x", 8, 6)
			err := caught(func() { c.step(x) })
			require.ErrorContains(t, err, c.want)
			var placement *logical.Error
			assert.True(t, errors.As(err, &placement) || errkind.KindOf(err) == errkind.InvalidArgumentError, "%T", err)
		})
	}
}

func TestOtherBackendsHaveNoLogicalDevices(t *testing.T) {
	backend, err := gobackend.New("")
	require.NoError(t, err)
	g := graph.NewGraph(backend, "plain")
	x := param(g, "x", 2)
	assert.ErrorContains(t, caught(func() { logical.Replicate(x) }), "trace the step through a strategy")
	assert.ErrorContains(t, caught(func() { spmd.AllReduce(x, spmd.Sum) }), "has no replicas")
}

func TestSignaturesThatDoNotFitAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		sig  spmd.Signature
		want string
	}{
		"too few arguments": {spmd.Signature{Results: make([]spmd.Tensor, 1)},
			`the signature has no argument for parameter "x"`},
		"too many results": {spmd.Signature{Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 2)},
			"1 arguments and 1 results, but the signature has 1 and 2"},
		"a split that does not divide": {spmd.Signature{Arguments: []spmd.Tensor{{Name: "x", Annotation: logical.SplitInto(1,
			4)}}, Results: make([]spmd.Tensor, 1)},
			`split "x" of shape [8 6]`},
		"a donation to no result": {spmd.Signature{Arguments: []spmd.Tensor{{Name: "x", Donated: true, Result: 3}},
			Results: make([]spmd.Tensor, 1)}, "donated to result 3 of 1"},
		"a donation to an unlike result": {spmd.Signature{Arguments: []spmd.Tensor{{Name: "x", Donated: true,
			PerReplica: true}}, Results: make([]spmd.Tensor, 1)}, "they must have the same"},
		"per step without a loop": {spmd.Signature{Arguments: []spmd.Tensor{{Name: "x", PerStep: true}},
			Results: make([]spmd.Tensor, 1)}, "only arguments of a loop"},
		"a result per step": {spmd.Signature{Arguments: make([]spmd.Tensor, 1),
			Results: []spmd.Tensor{{PerStep: true}}, Steps: 2}, "only arguments of a loop"},
		"a condition without a loop": {spmd.Signature{Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 1),
			While: true}, "the step is not in a loop"},
		"a condition that is none": {spmd.Signature{Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 1),
			Steps: 2, While: true}, "the first result is not a scalar of Bool"},
		"a negative number of steps": {spmd.Signature{Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 1),
			Steps: -1}, "-1 times"},
	} {
		t.Run(name, func(t *testing.T) {
			tr := spmd.NewTrace(spmd.Options{Replicas: 2, LogicalDevices: 4})
			g := graph.NewGraph(tr, "step")
			require.NoError(t, g.Compile(graph.Neg(param(g, "x", 8, 6))))
			_, err := tr.Module(g, c.sig)
			require.ErrorContains(t, err, c.want)
		})
	}
	other := graph.NewGraph(spmd.NewTrace(spmd.Options{}), "other")
	require.NoError(t, other.Compile(param(other, "x", 1)))
	_, err := spmd.NewTrace(spmd.Options{}).Module(other, spmd.Signature{})
	assert.ErrorContains(t, err, "was not compiled on this trace")
}

func TestTheTextIsTheSameEveryTime(t *testing.T) {
	var first string
	for range 20 {
		m := build(t, spmd.Options{Replicas: 2, LogicalDevices: 4}, spmd.Signature{
			Arguments: make([]spmd.Tensor, 2), Results: make([]spmd.Tensor, 2),
		}, func(g *graph.Graph) []*graph.Node {
			x, w := param(g, "x", 8, 8), param(g, "w", 8, 8)
			h := logical.OnDevice(2, logical.Split(graph.MatMul(x, w), 2, 2),
				func(h *graph.Node) *graph.Node { return graph.Tanh(graph.MatMul(h, w)) })
			y := graph.ReduceAllSum(h)
			return []*graph.Node{y, spmd.AllReduce(graph.Gradient(y, w)[0], spmd.Sum)}
		})
		if first == "" {
			first = string(m.Text)
		}
		require.Equal(t, first, string(m.Text))
	}
}

func TestTensorsOfLessThanAByteStayInsideAStep(t *testing.T) {
	for d, wider := range map[dtypes.DType]string{dtypes.Int4: "Int8", dtypes.Int2: "Int8", dtypes.Uint4: "Uint8",
		dtypes.Uint2: "Uint8"} {
		tr := spmd.NewTrace(spmd.Options{})
		g := graph.NewGraph(tr, "step")
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Int8, 4))
		require.NoError(t, g.Compile(graph.ConvertDType(x, d)))
		_, err := tr.Module(g, spmd.Signature{Arguments: make([]spmd.Tensor, 1), Results: []spmd.Tensor{{Name: "small"}}})
		assert.Equal(t, errkind.TypeError, errkind.KindOf(err))
		assert.ErrorContains(t, err, `result "small" has dtype `+d.String())
		assert.ErrorContains(t, err, "convert it to "+wider+" there")

		tr = spmd.NewTrace(spmd.Options{})
		g = graph.NewGraph(tr, "step")
		x = graph.Parameter(g, "x", shapes.Make(d, 4))
		require.NoError(t, g.Compile(graph.ConvertDType(x, dtypes.Int8)))
		_, err = tr.Module(g, spmd.Signature{Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 1)})
		assert.Equal(t, errkind.TypeError, errkind.KindOf(err))
		assert.ErrorContains(t, err, `argument "argument" has dtype `)
	}
}
