//go:build cgo

package spmd_test

import (
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

// block is a transformer layer with weights that are split over two logical devices, and the
// gradients of all its arguments: float32 weights, products of dtype d, float32 normalization.
// Contractions over a split dimension are summed over the devices: the outputs of attention and of
// the second dense layer in the forward pass, and the gradients of their inputs in the backward
// pass.
func block(g *graph.Graph, d dtypes.DType) []*graph.Node {
	const batch, width, heads, head, hidden = 4, 128, 4, 32, 256
	var all []*graph.Node
	of := func(name string, dims ...int) *graph.Node {
		all = append(all, graph.Parameter(g, name, shapes.Make(dtypes.Float32, dims...)))
		return graph.ConvertDType(all[len(all)-1], d)
	}
	x := of("x", batch, 64, width)
	q, k, v := of("q", width, heads, head), of("k", width, heads, head), of("v", width, heads, head)
	o, up, down := of("o", heads, head, width), of("up", width, hidden), of("down", hidden, width)
	byHead := func(x *graph.Node) *graph.Node { return logical.Split(x, 1, 1, 2, 1) }
	normalized := func(x *graph.Node) *graph.Node {
		x = graph.ConvertDType(x, dtypes.Float32)
		centered := graph.Sub(x, graph.ReduceAndKeep(x, graph.ReduceMean, -1))
		variance := graph.ReduceAndKeep(graph.Mul(centered, centered), graph.ReduceMean, -1)
		return graph.ConvertDType(graph.Div(centered, graph.Sqrt(graph.AddScalar(variance, 1e-3))), d)
	}
	n := normalized(x)
	query, key := byHead(graph.Einsum("bsw,whd->bshd", n, q)), byHead(graph.Einsum("bsw,whd->bshd", n, k))
	value := byHead(graph.Einsum("bsw,whd->bshd", n, v))
	scores := graph.Softmax(graph.Einsum("bshd,bthd->bhst", query, key), -1)
	attended := byHead(graph.Einsum("bhst,bthd->bshd", scores, value))
	y := graph.Add(x, logical.Replicate(graph.Einsum("bshd,hdw->bsw", attended, o)))
	h := logical.Split(graph.Tanh(graph.Dot(normalized(y), up).General([]int{2}, nil, []int{0}, nil)), 1, 1, 2)
	y = graph.Add(y, logical.Replicate(graph.Dot(h, down).General([]int{2}, nil, []int{0}, nil)))
	y = graph.ConvertDType(normalized(y), dtypes.Float32)
	return append([]*graph.Node{y}, graph.Gradient(graph.ReduceAllSum(graph.Mul(y, y)), all...)...)
}

func blockSignature() spmd.Signature {
	columns, rows := logical.SplitInto(1, 2, 1), logical.SplitInto(2, 1, 1)
	weights := []spmd.Tensor{{Annotation: columns}, {Annotation: columns}, {Annotation: columns}, {Annotation: rows},
		{Annotation: logical.SplitInto(1, 2)}, {Annotation: logical.SplitInto(2, 1)}}
	return spmd.Signature{
		Arguments: append([]spmd.Tensor{{}}, weights...),
		Results:   append([]spmd.Tensor{{}, {}}, weights...),
	}
}

func compileForTPU(t *testing.T, m *spmd.Module) *pjrt.Executable {
	t.Helper()
	plugin := plugintest.Open(t, "tpu")
	topology, err := plugin.NewTopology(t.Context(), "v5e:2x2", nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, topology.Close()) })
	ids := make([]int, m.Mesh.Size())
	for i := range ids {
		ids[i] = i
	}
	x, err := topology.Compile(t.Context(), pjrt.Program{Code: m.Text, Trusted: true}, pjrt.CompileOptions{
		Replicas: 1, Partitions: len(ids), DeviceAssignment: [][]int{ids}, SPMD: true, Shardy: true})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, x.Close()) })
	return x
}

// summed returns the bytes in the all-reduces and reduce-scatters of a program, by dtype.
func summed(ops []hlotest.Op) map[string]int64 {
	by := map[string]int64{}
	for _, op := range ops {
		switch op.Code {
		case "all-reduce", "all-reduce-start", "reduce-scatter":
			by[op.DType] += op.Bytes
		}
	}
	return by
}

func byteSize(sums map[string]int64) (total int64) {
	for _, n := range sums {
		total += n
	}
	return total
}

func TestSumsOverLogicalDevicesKeepTheDTypeOfTheirResults(t *testing.T) {
	if !plugintest.InChild(t) {
		plugintest.Path(t, "tpu")
		out, err := plugintest.Child(t, plugintest.TPUEnv()...)
		require.NoError(t, err, "%s", out)
		t.Log(out)
		return
	}
	// Four sums of [4 64 128]: two in the forward pass, and two in the backward pass, where the
	// adjoints of query, key and value are added before they are sent.
	const elements = 4 * 4 * 64 * 128
	for d, size := range map[dtypes.DType]int64{dtypes.Float32: 4, dtypes.BFloat16: 2, dtypes.Float16: 2} {
		m := build(t, spmd.Options{LogicalDevices: 2, Target: lowering.TargetTPU}, blockSignature(),
			func(g *graph.Graph) []*graph.Node { return block(g, d) })
		sums := summed(hlotest.Ops(t, compileForTPU(t, m)))
		assert.Equal(t, size*elements, byteSize(sums), "%s: %v", d, sums)
	}

	// The channels that a convolution contracts are split in the forward pass, and the channels
	// that its gradients contract in the backward pass.
	images := logical.SplitInto(1, 1, 1, 2)
	for name, split := range map[string][3]logical.Annotation{
		"forward":            {images, logical.SplitInto(1, 1, 2, 1), {}},
		"gradient of input":  {{}, logical.SplitInto(1, 1, 1, 2), images},
		"gradient of kernel": {logical.SplitInto(2, 1, 1, 1), {}, logical.SplitInto(2, 1, 1, 1)},
	} {
		var all [2]int64
		for i, d := range []dtypes.DType{dtypes.Float32, dtypes.BFloat16} {
			m := build(t, spmd.Options{LogicalDevices: 2, Target: lowering.TargetTPU}, spmd.Signature{
				Arguments: []spmd.Tensor{{Annotation: split[0]}, {Annotation: split[1]}}, Results: make([]spmd.Tensor, 3),
			}, func(g *graph.Graph) []*graph.Node {
				x, k := graph.Parameter(g, "x", shapes.Make(d, 4, 8, 8, 16)), graph.Parameter(g, "k", shapes.Make(d, 3, 3, 16, 32))
				y := graph.Convolve(logical.Apply(x, split[0]), logical.Apply(k, split[1])).PadSame().Done()
				y = logical.Apply(y, split[2])
				by := graph.Gradient(graph.ReduceAllSum(graph.Mul(y, y)), x, k)
				return []*graph.Node{y, by[0], by[1]}
			})
			sums := summed(hlotest.Ops(t, compileForTPU(t, m)))
			t.Log(name, d, sums)
			all[i] = byteSize(sums)
		}
		assert.Equal(t, all[0], 2*all[1], name)
		assert.Positive(t, all[0], name)
	}

	// A float32 product of the step is summed in float32. Its gradient, which has half precision,
	// is not.
	m := build(t, spmd.Options{LogicalDevices: 2, Target: lowering.TargetTPU}, spmd.Signature{
		Arguments: []spmd.Tensor{{Annotation: logical.SplitInto(1, 2)}, {Annotation: logical.SplitInto(2, 1)}},
		Results:   make([]spmd.Tensor, 1),
	}, func(g *graph.Graph) []*graph.Node {
		x, w := graph.Parameter(g, "x", shapes.Make(dtypes.BFloat16, 128, 256)), graph.Parameter(g, "w",
			shapes.Make(dtypes.BFloat16, 256, 512))
		asked := graph.Dot(x, w).WithOutputDType(dtypes.Float32).Product()
		converted := graph.ConvertDType(graph.Dot(graph.ConvertDType(x, dtypes.Float32),
			graph.ConvertDType(w, dtypes.Float32)).Product(), dtypes.BFloat16)
		return []*graph.Node{graph.Add(asked, graph.ConvertDType(converted, dtypes.Float32))}
	})
	assert.Equal(t, map[string]int64{"f32": 4 * 128 * 512}, summed(hlotest.Ops(t, compileForTPU(t, m))))
	m = build(t, spmd.Options{LogicalDevices: 2, Target: lowering.TargetTPU}, spmd.Signature{
		Arguments: []spmd.Tensor{{}, {Annotation: logical.SplitInto(1, 2)}}, Results: make([]spmd.Tensor, 1),
	}, func(g *graph.Graph) []*graph.Node {
		x, w := graph.Parameter(g, "x", shapes.Make(dtypes.BFloat16, 128, 256)), graph.Parameter(g, "w",
			shapes.Make(dtypes.BFloat16, 256, 512))
		y := graph.Dot(x, w).WithOutputDType(dtypes.Float32).Product()
		return graph.Gradient(graph.ReduceAllSum(graph.Mul(y, y)), x)
	})
	assert.Equal(t, map[string]int64{"bf16": 2 * 128 * 256}, summed(hlotest.Ops(t, compileForTPU(t, m))))
}

// TestHalfPrecisionIsSummedInFloat32 compares half-precision products and their gradients, split
// over two devices, with float32 results: each result is rounded once per device and once more in
// the sum, however many terms it has.
func TestHalfPrecisionIsSummedInFloat32(t *testing.T) {
	const n, terms = 8, 4096
	x, w := make([]float32, n*terms), make([]float32, terms*n)
	for i := range x {
		x[i], w[i] = float32(1+i%3)/4, float32(1+i%5)/8 // exact in half precision
	}
	results := map[dtypes.DType][][]float32{}
	for _, d := range []dtypes.DType{dtypes.Float32, dtypes.BFloat16, dtypes.Float16} {
		m := build(t, spmd.Options{LogicalDevices: 2, Target: lowering.TargetCPU}, spmd.Signature{
			Arguments: []spmd.Tensor{{Annotation: logical.SplitInto(1, 2)}, {Annotation: logical.SplitInto(2, 1)}},
			Results:   make([]spmd.Tensor, 6),
		}, func(g *graph.Graph) []*graph.Node {
			x, w := param(g, "x", n, terms), param(g, "w", terms, n)
			hx, hw := graph.ConvertDType(x, d), graph.ConvertDType(w, d)
			y := logical.Replicate(graph.Dot(hx, hw).Product())
			wide := graph.Dot(hx, hw).WithOutputDType(dtypes.Float32).Product()
			// The transposed product contracts n*terms in its gradient.
			flat := graph.Dot(graph.Transpose(hx, 0, 1), graph.Ones(g, shapes.Make(d, n, 2))).Product()
			by := graph.Gradient(graph.ReduceAllSum(graph.ConvertDType(y, dtypes.Float32)), x)[0]
			byFlat := graph.Gradient(graph.ReduceAllSum(graph.ConvertDType(flat, dtypes.Float32)), x)[0]
			byWide := graph.Gradient(graph.ReduceAllSum(graph.Mul(wide, wide)), x)[0]
			out := []*graph.Node{y, wide, by, byFlat, flat, byWide}
			for i, v := range out {
				out[i] = graph.ConvertDType(v, dtypes.Float32)
			}
			return out
		})
		results[d] = run(t, m, x, w)
	}
	for _, d := range []dtypes.DType{dtypes.BFloat16, dtypes.Float16} {
		ulp := map[dtypes.DType]float64{dtypes.BFloat16: 1.0 / 256, dtypes.Float16: 1.0 / 2048}[d]
		for i, want := range results[dtypes.Float32] {
			got := results[d][i]
			for k := range want {
				require.InEpsilon(t, want[k], got[k], 2*ulp, "%s, result %d", d, i)
			}
		}
		assert.Equal(t, results[dtypes.Float32][1], results[d][1], "a float32 result asked for is one")
	}
}
