package gomlx

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/engine"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

type nodes = []*graph.Node

// operands are the arguments of an op case: a batch of rows, weights, images, a kernel, positions.
type operands struct{ x, w, img, kernel, at, state *graph.Node }

var operandShapes = []shapes.Shape{
	shapes.Make(dtypes.Float32, 16, 8), shapes.Make(dtypes.Float32, 8, 16), shapes.Make(dtypes.Float32, 16, 8, 8, 4),
	shapes.Make(dtypes.Float32, 3, 3, 4, 8), shapes.Make(dtypes.Int32, 16), shapes.Make(dtypes.Uint64, 3),
}

func grad(y *graph.Node, of ...*graph.Node) nodes {
	w := graph.Iota(y.Graph(), shapes.Make(dtypes.Float32, y.Shape().Size()), 0)
	w = graph.Reshape(graph.Cos(w), y.Shape().Dimensions...)
	return append(graph.Gradient(graph.ReduceAllSum(graph.Mul(graph.Sin(y), w)), of...), y)
}

// opCases are ops whose numbers a partitioner may get wrong.
var opCases = []struct {
	name string
	f    func(o operands) nodes
}{
	{"dense", func(o operands) nodes { return grad(graph.Dot(o.x, o.w).Product(), o.x, o.w) }},
	{"softmax", func(o operands) nodes {
		return append(grad(graph.Softmax(o.x, 0), o.x), graph.LogSoftmax(o.x, 1), graph.Softmax(o.x, 0, 1))
	}},
	{"reduce", func(o operands) nodes {
		return nodes{graph.ReduceMax(o.x, 0), graph.ReduceMin(o.x, 1), graph.ReduceMultiply(o.x, 0), graph.ReduceAllMean(o.x),
			graph.ReduceVariance(o.x, 0), graph.ReduceMax(o.img, 0, 2)}
	}},
	{"conv", func(o operands) nodes {
		return grad(graph.Convolve(o.img, o.kernel).PadSame().Done(), o.img, o.kernel)
	}},
	{"conv strides", func(o operands) nodes {
		return grad(graph.Convolve(o.img, o.kernel).Strides(2).NoPadding().Done(), o.img, o.kernel)
	}},
	{"conv dilation", func(o operands) nodes {
		return grad(graph.Convolve(o.img, o.kernel).Dilations(2).PadSame().Done(), o.img, o.kernel)
	}},
	{"conv grouped", func(o operands) nodes {
		k := graph.Slice(o.kernel, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(0, 1), graph.AxisRange())
		return grad(graph.Convolve(o.img, k).ChannelGroupCount(4).PadSame().Done(), o.img, o.kernel)
	}},
	{"maxpool", func(o operands) nodes { return grad(graph.MaxPool(o.img).Window(2).Done(), o.img) }},
	{"maxpool overlap", func(o operands) nodes {
		return grad(graph.MaxPool(o.img).Window(3).Strides(2).PadSame().Done(),
			o.img)
	}},
	{"meanpool", func(o operands) nodes { return grad(graph.MeanPool(o.img).Window(2).Done(), o.img) }},
	{"cumsum", func(o operands) nodes { return append(grad(graph.CumSum(o.x, 0), o.x), graph.CumSum(o.x, 1)) }},
	{"argmax", func(o operands) nodes {
		return nodes{graph.ConvertDType(graph.ArgMax(o.x, 0), dtypes.Float32), graph.ConvertDType(graph.ArgMin(o.x, 1),
			dtypes.Float32)}
	}},
	{"sort", func(o operands) nodes { return nodes{graph.Sort(o.x, 0, true), graph.Sort(o.x, 1, false)} }},
	{"topk", func(o operands) nodes {
		a, b := graph.TopK(o.x, 3, 0)
		c, d := graph.TopK(o.x, 3, 1)
		return nodes{a, graph.ConvertDType(b, dtypes.Float32), c, graph.ConvertDType(d, dtypes.Float32)}
	}},
	{"fft", func(o operands) nodes {
		c := graph.FFT(graph.ConvertDType(o.x, dtypes.Complex64))
		return nodes{graph.Abs(c), graph.Abs(graph.RealFFT(o.x)),
			graph.InverseRealFFT(graph.RealFFT(graph.Transpose(o.x, 0, 1)))}
	}},
	{"slice", func(o operands) nodes {
		return append(grad(graph.Slice(o.x, graph.AxisRange(3, 11), graph.AxisRange(1, 7)), o.x),
			graph.Slice(o.x, graph.AxisRange(1).Stride(3), graph.AxisRange()))
	}},
	{"dynamic slice", func(o operands) nodes {
		i := graph.Reshape(graph.Slice(o.at, graph.AxisElem(2)))
		z := graph.Scalar(o.x.Graph(), dtypes.Int32, 1)
		y := graph.DynamicSlice(o.x, nodes{i, z}, []int{4, 3})
		return append(grad(y, o.x), graph.DynamicUpdateSlice(o.x, y, nodes{z, i}))
	}},
	{"concat", func(o operands) nodes {
		return append(grad(graph.Concatenate(nodes{o.x, graph.Neg(o.x)}, 0), o.x), graph.Concatenate(nodes{o.x, o.x, o.x}, 1),
			graph.Stack(nodes{o.x, o.x}, 1))
	}},
	{"reverse", func(o operands) nodes {
		return nodes{graph.Reverse(o.x, 0), graph.Reverse(o.x, 0, 1), graph.Reverse(o.img, 2)}
	}},
	{"pad", func(o operands) nodes {
		one := graph.Scalar(o.x.Graph(), dtypes.Float32, 1)
		return append(grad(graph.Pad(o.x, one, graph.PadAxis{Start: 1, End: 2}, graph.PadAxis{End: 1, Interior: 2}), o.x),
			graph.Pad(o.x, one, graph.PadAxis{Start: -1, End: 3, Interior: 1}, graph.PadAxis{Start: 2, End: -2}))
	}},
	{"shift", func(o operands) nodes {
		return nodes{graph.ShiftLeft(o.x, 1, 0), graph.Shift(o.x, 0, graph.ShiftDirRight, 3)}
	}},
	{"transpose", func(o operands) nodes {
		return nodes{graph.Transpose(o.x, 0, 1), graph.TransposeAllAxes(o.img, 3, 0, 2, 1), graph.Reshape(o.img, 64, 64),
			graph.Reshape(o.x, 4, 4, 2, 4)}
	}},
	{"gather", func(o operands) nodes {
		return grad(graph.Gather(o.w, graph.InsertAxes(graph.ModScalar(o.at, 8), -1)), o.w)
	}},
	{"gather batch", func(o operands) nodes {
		at := graph.InsertAxes(graph.ModScalar(o.at, 8), -1)
		one := graph.OneHot(graph.Squeeze(at, -1), 8, dtypes.Float32)
		pairs := graph.Concatenate(nodes{graph.Iota(o.x.Graph(), shapes.Make(dtypes.Int32, 16, 1), 0), at}, 1)
		return append(grad(graph.Gather(o.x, pairs), o.x), one)
	}},
	{"scatter", func(o operands) nodes {
		at := graph.InsertAxes(o.at, -1)
		return nodes{graph.ScatterSum(o.x, at, graph.Cos(o.x), false, false), graph.ScatterMax(o.x, at, graph.Cos(o.x), false,
			false), graph.Scatter(at, o.x, shapes.Make(dtypes.Float32, 32, 8), false, false)}
	}},
	{"batch norm", func(o operands) nodes {
		s, b := graph.ReduceMean(o.w, 1), graph.ReduceMax(o.w, 1)
		y, mean, variance := graph.InternalBatchNormForTraining(o.x, s, b, 1e-3, 1)
		dx, ds, db := graph.InternalBatchNormGradient(o.x, s, mean, variance, graph.Cos(o.x), 1e-3, 1)
		return nodes{y, mean, variance, dx, ds, db, graph.InternalBatchNormForInference(o.x, s, b, mean, variance, 1e-3, 1)}
	}},
	{"random", func(o operands) nodes {
		s, u := graph.RandomUniform(o.state, shapes.Make(dtypes.Float32, 16, 8))
		s, n := graph.RandomNormal(s, shapes.Make(dtypes.Float32, 16, 8))
		_, k := graph.RandomUniform(s, shapes.Make(dtypes.Float32, 5))
		return nodes{u, graph.Add(n, o.x), k}
	}},
	{"while", func(o operands) nodes {
		g := o.x.Graph()
		zero := graph.Scalar(g, dtypes.Int32, 0)
		cond := graph.NewClosure(g, func(g *graph.Graph) nodes {
			i, _ := graph.Parameter(g, "i", zero.Shape()), graph.Parameter(g, "x", o.x.Shape())
			return nodes{graph.LessThan(i, graph.Scalar(g, dtypes.Int32, 5))}
		})
		body := graph.NewClosure(g, func(g *graph.Graph) nodes {
			i, x := graph.Parameter(g, "i", zero.Shape()), graph.Parameter(g, "x", o.x.Shape())
			return nodes{graph.OnePlus(i), graph.Add(x, graph.Softmax(x, 0))}
		})
		return graph.While(cond, body, zero, o.x)[1:]
	}},
	{"if", func(o operands) nodes {
		g := o.x.Graph()
		pred := graph.GreaterThan(graph.ReduceAllMax(o.x), graph.Scalar(g, dtypes.Float32, 0.5))
		yes := graph.NewClosure(g, func(*graph.Graph) nodes { return nodes{graph.Softmax(o.x, 0)} })
		no := graph.NewClosure(g, func(*graph.Graph) nodes { return nodes{graph.Neg(o.x)} })
		return graph.If(pred, yes, no)
	}},
	{"attention", func(o operands) nodes {
		q := graph.Reshape(o.img, 16, 64, 4)
		s := graph.Einsum("bqd,bkd->bqk", q, q)
		return grad(graph.Einsum("bqk,bkd->bqd", graph.Softmax(s, -1), q), o.img)
	}},
	{"normalize", func(o operands) nodes {
		return append(grad(graph.L2Normalize(o.x, 0), o.x), graph.CrossCosineSimilarity(o.x, o.x, 1, 0))
	}},
	{"triangular", func(o operands) nodes {
		return nodes{graph.TakeLowerTriangular(o.x, 0), graph.Iota(o.x.Graph(), shapes.Make(dtypes.Float32, 16, 8), 0)}
	}},
	{"interpolate", func(o operands) nodes {
		return grad(graph.Interpolate(o.img, 16, 16, 16, 4).Bilinear().Done(),
			o.img)
	}},
	{"bitcast", func(o operands) nodes {
		return nodes{graph.ConvertDType(graph.Bitcast(o.x, dtypes.Uint16), dtypes.Float32),
			graph.ConvertDType(graph.Bitcast(o.x, dtypes.Int32), dtypes.Float32)}
	}},
	{"barrier", func(o operands) nodes { return graph.OptimizationBarriers(o.x, graph.Neg(o.w)) }},
	{"consecutive", func(o operands) nodes {
		return nodes{graph.ConsecutiveDifference(o.x, 0, true), graph.ConsecutiveDifference(o.x, 1, false)}
	}},
	{"integers", func(o operands) nodes {
		s := graph.ReduceSum(o.at, 0)
		return nodes{graph.ConvertDType(s, dtypes.Float32), graph.ConvertDType(graph.CumSum(o.at, 0), dtypes.Float32),
			graph.ConvertDType(graph.ReduceMax(o.at), dtypes.Float32)}
	}},
	{"logical", func(o operands) nodes {
		some := graph.GreaterThan(o.x, graph.ScalarZero(o.x.Graph(), dtypes.Float32))
		return nodes{graph.Where(some, o.x, graph.Neg(o.x)), graph.ConvertDType(graph.LogicalAll(some, 0), dtypes.Float32),
			graph.ConvertDType(graph.LogicalAny(some, 1), dtypes.Float32)}
	}},
	{"window", func(o operands) nodes {
		return nodes{graph.BackendReduceWindow(o.x, 3, []int{3, 2}, []int{1, 2}, nil, nil, [][2]int{{1, 1}, {0, 1}})}
	}},
}

// splits are ways in which the operands lie: batches over the replicas, as data does, and both
// dimensions of matrices over both axes, as rules can have it.
var splits = map[string]func(rank int) []sharding.Dim{
	"batches": func(rank int) []sharding.Dim {
		dims := make([]sharding.Dim, rank)
		dims[0].Axes = []string{spmd.ReplicaAxis}
		return dims
	},
	"grid": func(rank int) []sharding.Dim {
		dims := make([]sharding.Dim, rank)
		dims[0].Axes, dims[1%rank].Axes = []string{spmd.LogicalAxis}, []string{spmd.ReplicaAxis}
		return dims
	},
}

// TestOpsGiveTheNumbersOfOneDevice runs each op on operands that are whole on each device and on
// operands that are split. Several ops share a program, which takes less time to compile.
func TestOpsGiveTheNumbersOfOneDevice(t *testing.T) {
	b, err := New(plugintest.System(t, 8), Options{LogicalDevices: 2, Compiler: plugintest.Programs(t)})
	require.NoError(t, err)
	defer func() { require.NoError(t, b.Close()) }()
	data := operandData()
	for at := 0; at < len(opCases); at += 10 {
		cases := opCases[at:min(at+10, len(opCases))]
		g := graph.NewGraph(b, cases[0].name)
		var in, out nodes
		for i, s := range operandShapes {
			in = append(in, graph.Parameter(g, fmt.Sprintf("x%d", i), s))
		}
		var of []string
		for _, c := range cases {
			for _, y := range c.f(operands{in[0], in[1], in[2], in[3], in[4], in[5]}) {
				out, of = append(out, y), append(of, c.name)
			}
		}
		require.NoError(t, g.Compile(out...))
		c := g.Executable().(*Executable).state
		sig, _ := c.signature(nil)
		for i, s := range operandShapes {
			sig.Arguments[i].Spec = sharding.Replicated(s.Rank())
		}
		want, err := run(b, c, sig, data)
		require.NoError(t, err)
		for name, split := range splits {
			split0 := 0
			for i, s := range operandShapes[:5] {
				sig.Arguments[i].Spec = sharding.Replicated(s.Rank())
				if spec := sharding.NewSpec(split(s.Rank())...); spec.Validate(b.mesh, s.Dimensions) == nil {
					sig.Arguments[i].Spec = spec
					split0++
				}
			}
			require.Greater(t, split0, 2, "operands that are split")
			got, err := run(b, c, sig, data)
			require.NoError(t, err, name)
			for i := range got {
				assert.LessOrEqual(t, worst(got[i], want[i]), 1e-4, "%s, %s, result %d", of[i], name, i)
			}
		}
	}
}

// operandData are values of the operands.
func operandData() (data [][]byte) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, s := range operandShapes {
		switch s.DType {
		case dtypes.Int32:
			v := make([]int32, s.Size())
			for k := range v {
				v[k] = rng.Int32N(16)
			}
			data = append(data, pjrt.Bytes(v))
		case dtypes.Uint64:
			data = append(data, pjrt.Bytes([]uint64{1, 2, 3}))
		default:
			v := make([]float32, s.Size())
			for k := range v {
				v[k] = rng.Float32()
			}
			data = append(data, pjrt.Bytes(v))
		}
	}
	return data
}

// run compiles a program with a sig, runs it, and reads its results.
func run(b *Backend, c *executableState, fr spmd.GlobalSignature, data [][]byte) (out [][]float32, err error) {
	v, err := c.buildForSignature(fr, nil)
	if err != nil {
		return nil, err
	}
	defer v.exe.Close()
	args, results := engine.NewBufferTable(len(v.partitions), len(v.args)), engine.NewBufferTable(len(v.partitions),
		len(v.results))
	for i, x := range data {
		l, err := b.transfer(x, v.args[i])
		if err != nil {
			return nil, err
		}
		defer l.Close()
		for row, d := range v.partitions {
			args[row][i] = l.Buffers[d]
		}
	}
	if err := v.exe.Execute(context.Background(), args, results, pjrt.ExecuteOptions{}); err != nil {
		return nil, err
	}
	for r := range v.results {
		l := &placement{layout: v.results[r], Buffers: b.runtime.TableColumn(results, v.partitions, r)}
		h := &bufferState{backend: b, shape: c.program.Outputs[r], placements: []*placement{l}}
		x := make([]float32, c.program.Outputs[r].Size())
		if err := h.copyFlat(x); err != nil {
			return nil, err
		}
		h.Close()
		out = append(out, x)
	}
	return out, nil
}

// worst is the largest difference, absolute or relative.
func worst(a, b []float32) (d float64) {
	for i := range a {
		d = max(d, math.Abs(float64(a[i]-b[i]))/(1+math.Abs(float64(b[i]))))
	}
	return d
}
