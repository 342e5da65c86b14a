//go:build cgo

package spmd_test

import (
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/hlotest"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// work is the work of an optimized program: the numbers of products on all devices, of products on
// one device, and of collectives.
type work struct{ everywhere, alone, collectives int }

func workOf(ops []hlotest.Op) (w work) {
	for _, op := range ops {
		switch op.Code {
		case "dot", "convolution":
			if op.Guarded {
				w.alone++
			} else {
				w.everywhere++
			}
		case "all-reduce", "all-reduce-start", "all-gather", "all-gather-start", "collective-permute",
			"collective-permute-start",
			"all-to-all", "reduce-scatter":
			w.collectives++
		}
	}
	return w
}

func compileForCPU(t *testing.T, m *spmd.Module) *pjrt.Executable {
	t.Helper()
	client := plugintest.CPU(t, m.Mesh.Size())
	ids := make([]int, m.Mesh.Size())
	for i := range ids {
		ids[i] = i
	}
	x, err := client.Compile(t.Context(), pjrt.Program{Code: m.Text, Format: "mlir", Trusted: true},
		pjrt.CompileOptions{Replicas: 1, Partitions: len(ids), DeviceAssignment: [][]int{ids}, SPMD: true, Shardy: true})
	require.NoError(t, err, "%s", m.Text)
	t.Cleanup(func() { assert.NoError(t, x.Close()) })
	return x.Executable()
}

const indexedTrace = 64

func matrix(g *graph.Graph, name string) *graph.Node {
	return param(g, name, indexedTrace, indexedTrace)
}

func devices(g *graph.Graph) int { return g.Backend().(logical.Target).LogicalDevices() }

// assign is logical.Assign that also supports a replica with fewer devices.
func assign(x *graph.Node, k int) *graph.Node { return logical.Assign(x, k%devices(x.Graph())) }

// layer is a dense layer. The annotation is on its last op.
func layer(x, w, b *graph.Node, k int) *graph.Node {
	return assign(graph.Tanh(graph.Add(graph.MatMul(x, w), b)), k)
}

// assigned are steps with the expected work of their programs on one replica of two devices.
var assigned = []struct {
	name          string
	args, results int
	split         logical.Annotation // annotation of the first argument
	step          func(g *graph.Graph) []*graph.Node
	want          work
	regions       int
}{
	{"one product", 2, 1, logical.Annotation{}, func(g *graph.Graph) []*graph.Node {
		return []*graph.Node{assign(graph.MatMul(matrix(g, "x"), matrix(g, "w")), 1)}
	}, work{0, 1, 1}, 1},
	{"ops on one device are one region", 2, 1, logical.Annotation{}, func(g *graph.Graph) []*graph.Node {
		x, w := matrix(g, "x"), matrix(g, "w")
		for range 4 {
			x = assign(graph.MatMul(x, w), 1)
		}
		return []*graph.Node{x}
	}, work{0, 4, 1}, 1},
	{"two layers and their gradients", 5, 6, logical.Annotation{}, func(g *graph.Graph) []*graph.Node {
		x, w, v, b, c := matrix(g, "x"), matrix(g, "w"), matrix(g, "v"), matrix(g, "b"), matrix(g, "c")
		y := layer(layer(x, w, b, 0), v, c, 1)
		return append([]*graph.Node{y}, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, y)), x, w, v, b, c)...)
	}, work{0, 6, 4}, 5},
	{"what is on all devices stays there", 2, 3, logical.Annotation{}, func(g *graph.Graph) []*graph.Node {
		x, w := assign(matrix(g, "x"), 0), assign(matrix(g, "w"), 1)
		c := assign(graph.Const(g, [][]float32{{1}}), 1)
		turned := assign(graph.Transpose(x, 0, 1), 1)
		return []*graph.Node{graph.MatMul(x, w), graph.Mul(turned, graph.BroadcastToDims(c, indexedTrace, indexedTrace)),
			assign(logical.Replicate(w), 0)}
	}, work{1, 0, 0}, 0},
	{"a product that others read too runs once", 2, 2, logical.Annotation{}, func(g *graph.Graph) []*graph.Node {
		h := graph.MatMul(matrix(g, "x"), matrix(g, "w"))
		return []*graph.Node{graph.Exp(h), assign(h, 1)}
	}, work{0, 1, 1}, 1},
	{"the first device keeps it", 2, 1, logical.Annotation{}, func(g *graph.Graph) []*graph.Node {
		return []*graph.Node{assign(assign(graph.MatMul(matrix(g, "x"), matrix(g, "w")), 1), 0)}
	}, work{0, 1, 1}, 1},
	{"a product of parts stays parted", 2, 1, logical.SplitInto(2, 1), func(g *graph.Graph) []*graph.Node {
		return []*graph.Node{assign(graph.MatMul(matrix(g, "x"), matrix(g, "w")), 1)}
	}, work{1, 0, 1}, 0},
	{"random bits are all devices'", 2, 1, logical.Annotation{}, func(g *graph.Graph) []*graph.Node {
		state := graph.Const(g, []uint64{1, 2, 3})
		_, bits := graph.RandomUniform(state, shapes.Make(dtypes.Float32, indexedTrace, indexedTrace))
		return []*graph.Node{assign(graph.Mul(graph.MatMul(matrix(g, "x"), matrix(g, "w")), bits), 1)}
	}, work{0, 1, 1}, 1},
	{"beside a region", 2, 2, logical.Annotation{}, func(g *graph.Graph) []*graph.Node {
		x, w := matrix(g, "x"), matrix(g, "w")
		h := assign(graph.MatMul(x, w), 1)
		y := logical.OnDeviceMany(1%devices(g), []*graph.Node{h},
			func(in []*graph.Node) []*graph.Node { return []*graph.Node{graph.MatMul(in[0], w)} })[0]
		z := assign(graph.MatMul(y, w), 1)
		return []*graph.Node{z, graph.Gradient(graph.ReduceAllSum(z), w)[0]}
	}, work{0, 8, 1}, 5},
}

func TestAssignedOpsRunOnTheirDevice(t *testing.T) {
	for _, c := range assigned {
		t.Run(c.name, func(t *testing.T) {
			m := build(t, spmd.Options{LogicalDevices: 2, Target: lowering.TargetCPU}, spmd.Signature{
				Arguments: append([]spmd.Tensor{{Annotation: c.split}}, make([]spmd.Tensor, c.args-1)...),
				Results:   make([]spmd.Tensor, c.results),
			}, c.step)
			assert.Equal(t, c.want, workOf(hlotest.Ops(t, compileForCPU(t, m))))
			assert.Equal(t, c.regions, strings.Count(string(m.Text), "func.func private @region_"))

			one := build(t, spmd.Options{Target: lowering.TargetCPU},
				spmd.Signature{Arguments: make([]spmd.Tensor, c.args), Results: make([]spmd.Tensor, c.results)}, c.step)
			in := make([][]float32, c.args)
			for i := range in {
				in[i] = make([]float32, indexedTrace*indexedTrace)
				for k := range in[i] {
					in[i][k] = float32((k*7+i)%13-6) / 64
				}
			}
			got, want := run(t, m, in...), run(t, one, in...)
			for i := range want {
				assert.InDeltaSlice(t, want[i], got[i], 1e-3)
			}
		})
	}
}

func TestAssignedOpsRunOnTheirDeviceOfATPU(t *testing.T) {
	if !plugintest.InChild(t) {
		plugintest.Path(t, "tpu")
		out, err := plugintest.Child(t, plugintest.TPUEnv()...)
		require.NoError(t, err, "%s", out)
		return
	}
	for _, c := range assigned {
		m := build(t, spmd.Options{LogicalDevices: 2, Target: lowering.TargetTPU}, spmd.Signature{
			Arguments: append([]spmd.Tensor{{Annotation: c.split}}, make([]spmd.Tensor, c.args-1)...),
			Results:   make([]spmd.Tensor, c.results),
		}, c.step)
		got := workOf(hlotest.Ops(t, compileForTPU(t, m)))
		assert.Equal(t, c.want.everywhere > 0, got.everywhere > 0, "%s: %v", c.name, got)
		assert.Equal(t, c.want.alone > 0, got.alone > 0, "%s: %v", c.name, got)
		t.Log(c.name, got)
	}
}

// TestCollectivesAreNotAssigned runs an all-reduce over two replicas between two products on one
// device, in the forward pass and, for its gradient, in the backward pass.
func TestCollectivesAreNotAssigned(t *testing.T) {
	step := func(g *graph.Graph) []*graph.Node {
		x, w := param(g, "x", 4, 4), param(g, "w", 4, 4)
		h := assign(spmd.AllReduce(assign(graph.MatMul(x, w), 1), spmd.Sum), 1)
		y := assign(graph.MatMul(h, w), 1)
		return []*graph.Node{y, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, y)), w)[0]}
	}
	results := map[int][][]float32{}
	for _, p := range []int{1, 2, 4} {
		m := build(t, spmd.Options{Replicas: 2, LogicalDevices: p, Target: lowering.TargetCPU}, spmd.Signature{
			Arguments: []spmd.Tensor{{PerReplica: true}, {}}, Results: []spmd.Tensor{{PerReplica: true}, {PerReplica: true}},
		}, step)
		results[p] = run(t, m, count(32), count(16))
		if p > 1 {
			w := workOf(hlotest.Ops(t, compileForCPU(t, m)))
			assert.Zero(t, w.everywhere)
			assert.Positive(t, w.alone)
		}
	}
	assert.Equal(t, results[1], results[2])
	assert.Equal(t, results[1], results[4])
}
