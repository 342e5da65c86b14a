//go:build cgo

package spmd_test

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/logical"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/spmd"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/sharding"
)

// run compiles a module and runs it on CPU devices. The arguments and results are global float32
// tensors.
func run(t *testing.T, m *spmd.Module, args ...[]float32) [][]float32 {
	t.Helper()
	results, err := execute(t, m, args...)
	require.NoError(t, err, "%s", m.Text)
	return results
}

// execute is run for a module that may fail to compile or to run.
func execute(t *testing.T, m *spmd.Module, args ...[]float32) ([][]float32, error) {
	t.Helper()
	ctx := context.Background()
	client := plugintest.CPU(t, m.Mesh.Size())
	ids := make([]int, m.Mesh.Size())
	for i := range ids {
		ids[i] = i
	}
	many := m.Partitions > 1
	x, err := plugintest.Programs(t).Compile(ctx, client, pjrt.Program{Code: m.Text, Format: "mlir", Trusted: true},
		pjrt.CompileOptions{Replicas: m.Replicas, Partitions: m.Partitions, DeviceAssignment: slices.Collect(slices.Chunk(ids,
			m.Partitions)), SPMD: many, Shardy: many})
	if err != nil {
		return nil, err
	}
	defer x.Close()
	in, out := make([][]*pjrt.Buffer, len(ids)), make([][]*pjrt.Buffer, len(ids))
	donate := make([]bool, len(m.Arguments))
	for d, device := range x.AddressableDevices() {
		out[d] = make([]*pjrt.Buffer, len(m.Results))
		for i, a := range m.Arguments {
			donate[i] = a.Donated
			shard := visit(t, m, a, d, args[i], nil)
			data := make([]byte, 4*len(shard))
			for k, v := range shard {
				binary.LittleEndian.PutUint32(data[4*k:], math.Float32bits(v))
			}
			b, err := client.BufferFromHost(ctx, data, pjrt.F32, a.ShardDims, device)
			require.NoError(t, err)
			defer b.Close()
			in[d] = append(in[d], b)
		}
	}
	if err := x.Execute(ctx, in, out, pjrt.ExecuteOptions{Donate: donate}); err != nil {
		return nil, err
	}
	var results [][]float32
	for j, r := range m.Results {
		global := make([]float32, size(r.GlobalDims))
		for d := range out {
			data := make([]byte, 4*size(r.ShardDims))
			if err := out[d][j].ToHost(ctx, data); err != nil {
				return nil, err
			}
			shard := make([]float32, size(r.ShardDims))
			for k := range shard {
				shard[k] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*k:]))
			}
			visit(t, m, r, d, global, shard)
			require.NoError(t, out[d][j].Close())
		}
		results = append(results, global)
	}
	return results, nil
}

// visit returns device d's shard of a global tensor. If shard is not nil, it writes shard into the
// tensor instead.
func visit(t *testing.T, m *spmd.Module, p spmd.ShardedTensor, d int, global, shard []float32) []float32 {
	ranges, err := sharding.IndexRanges(m.Mesh, p.Spec, p.GlobalDims, d)
	require.NoError(t, err)
	write := shard != nil
	n := 0
	var walk func(dim, offset int)
	walk = func(dim, offset int) {
		if dim == len(ranges) {
			if write {
				global[offset] = shard[n]
			} else {
				shard = append(shard, global[offset])
			}
			n++
			return
		}
		for i := ranges[dim].Start; i < ranges[dim].Stop; i++ {
			walk(dim+1, offset*p.GlobalDims[dim]+i)
		}
	}
	walk(0, 0)
	return shard
}

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func count(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i)
	}
	return v
}

var meshes = [][2]int{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {4, 2}, {2, 4}}

func TestCollectivesMeetAcrossReplicas(t *testing.T) {
	for _, mesh := range meshes {
		r, p := mesh[0], mesh[1]
		m := build(t, spmd.Options{Replicas: r, LogicalDevices: p, Target: lowering.TargetCPU}, spmd.Signature{
			Arguments: []spmd.Tensor{{Name: "x", PerReplica: true}},
			Results: []spmd.Tensor{{Name: "sum"}, {Name: "max"}, {Name: "gathered"}, {Name: "scattered", PerReplica: true},
				{Name: "id", PerReplica: true}},
		}, func(g *graph.Graph) []*graph.Node {
			x := param(g, "x", 4)
			return []*graph.Node{
				spmd.AllReduce(x, spmd.Sum), spmd.AllReduce(x, spmd.Max), spmd.AllGather(x, 0),
				spmd.ReduceScatter(x, 0), graph.ConvertDType(spmd.ReplicaID(g), dtypes.Float32),
			}
		})
		in := count(4 * r)
		out := run(t, m, in)
		sum, largest := make([]float32, 4), make([]float32, 4)
		for i, v := range in {
			sum[i%4] += v
			largest[i%4] = max(largest[i%4], v)
		}
		assert.Equal(t, sum, out[0], "%dx%d sum", r, p)
		assert.Equal(t, largest, out[1], "%dx%d max", r, p)
		assert.Equal(t, in, out[2], "%dx%d gather", r, p)
		assert.Equal(t, sum, out[3], "%dx%d scatter", r, p)
		assert.Equal(t, count(r), out[4], "%dx%d replica ids", r, p)
	}
}

func TestCollectivesHaveGradients(t *testing.T) {
	// m/dx of sum(w * gather(x)) is w's part of this replica, once for each
	// replica; that of sum(w * all_reduce(x)) is w, likewise.
	m := build(t, spmd.Options{Replicas: 2, Target: lowering.TargetCPU}, spmd.Signature{
		Arguments: []spmd.Tensor{{PerReplica: true}, {}, {}},
		Results:   []spmd.Tensor{{PerReplica: true}, {PerReplica: true}},
	}, func(g *graph.Graph) []*graph.Node {
		x, w, v := param(g, "x", 2), param(g, "w", 4), param(g, "v", 2)
		gathered := graph.Gradient(graph.ReduceAllSum(graph.Mul(w, spmd.AllGather(x, 0))), x)[0]
		reduced := graph.Gradient(graph.ReduceAllSum(graph.Mul(v, spmd.AllReduce(x, spmd.Sum))), x)[0]
		return []*graph.Node{gathered, reduced}
	})
	out := run(t, m, []float32{1, 2, 3, 4}, []float32{10, 20, 30, 40}, []float32{5, 6})
	assert.Equal(t, []float32{20, 40, 60, 80}, out[0])
	assert.Equal(t, []float32{10, 12, 10, 12}, out[1])
}

func TestPlacementsKeepTheNumbers(t *testing.T) {
	// step = On(0, tanh(split(x) w)) assigned; the gradient of its sum by w.
	step := func(p int) func(g *graph.Graph) []*graph.Node {
		return func(g *graph.Graph) []*graph.Node {
			x, w := param(g, "x", 4, 4), param(g, "w", 4, 8)
			h := graph.MatMul(x, w)
			if p > 0 {
				h = logical.Split(h, 1, p)
			}
			tanh := func(h *graph.Node) *graph.Node { return graph.Tanh(graph.Add(h, graph.MatMul(x, w))) }
			if p > 0 {
				h = logical.Assign(logical.OnDevice(p-1, h, tanh), p/2)
			} else {
				h = tanh(h)
			}
			y := graph.ReduceAllSum(graph.Mul(h, h))
			return []*graph.Node{y, graph.Gradient(y, w)[0]}
		}
	}
	x, w := make([]float32, 16), make([]float32, 32)
	for i := range w {
		w[i] = float32(math.Sin(float64(i)))
		x[i%16] = float32(math.Cos(float64(i))) / 3
	}
	sig := spmd.Signature{Arguments: []spmd.Tensor{{Name: "x"}, {Name: "w"}}, Results: make([]spmd.Tensor, 2)}
	want := run(t, build(t, spmd.Options{Target: lowering.TargetCPU}, sig, step(0)), x, w)
	for _, p := range []int{1, 2, 4} {
		for _, r := range []int{1, 2} {
			got := run(t, build(t, spmd.Options{Replicas: r, LogicalDevices: p, Target: lowering.TargetCPU}, sig, step(p)), x, w)
			for i := range want {
				assert.InDeltaSlice(t, want[i], got[i], 1e-5, "%d replicas of %d", r, p)
			}
		}
	}
}

func TestALoopEqualsItsSteps(t *testing.T) {
	// const <- w - 0.1 * mean over replicas of (w - x_i); the result is sum(w).
	const steps = 5
	step := func(p int) func(g *graph.Graph) []*graph.Node {
		return func(g *graph.Graph) []*graph.Node {
			w, x := param(g, "w", 4), param(g, "x", 2, 4)
			gradient := graph.Sub(w, logical.Split(graph.ReduceMean(x, 0), p))
			gradient = spmd.AllReduce(graph.MulScalar(gradient, 0.1), spmd.Sum)
			w = graph.Sub(w, gradient)
			return []*graph.Node{graph.ReduceAllSum(w), w}
		}
	}
	for _, mesh := range meshes[:5] {
		r, p := mesh[0], mesh[1]
		opts := spmd.Options{Replicas: r, LogicalDevices: p, Target: lowering.TargetCPU}
		split := logical.SplitInto(p)
		w := spmd.Tensor{Name: "w", Donated: true, Result: 1, Annotation: split}
		results := []spmd.Tensor{{Name: "sum", PerReplica: true}, {Name: "w", Annotation: split}}
		single := build(t, opts, spmd.Signature{Arguments: []spmd.Tensor{w, {Name: "x", PerReplica: true}}, Results: results},
			step(p))
		loop := build(t, opts, spmd.Signature{Arguments: []spmd.Tensor{w, {Name: "x", PerReplica: true, PerStep: true}},
			Results: results, Steps: steps}, step(p))
		xs := count(steps * r * 2 * 4)
		state := []float32{1, 2, 3, 4}
		var want [][]float32
		for i := range steps {
			n := r * 2 * 4
			want = run(t, single, state, xs[i*n:(i+1)*n])
			state = want[1]
		}
		got := run(t, loop, []float32{1, 2, 3, 4}, xs)
		assert.Equal(t, want, got, "%dx%d", r, p)
	}
}

func TestLoopsOfTheStepMayHoldAnnotations(t *testing.T) {
	// The mark of an annotation is inside the loop body's closure.
	m := build(t, spmd.Options{Replicas: 1, LogicalDevices: 2}, spmd.Signature{
		Arguments: make([]spmd.Tensor, 1), Results: make([]spmd.Tensor, 1),
	}, func(g *graph.Graph) []*graph.Node {
		x := param(g, "x", 4, 4)
		cond := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			i := graph.Parameter(g, "i", shapes.Make(dtypes.Float32))
			_ = graph.Parameter(g, "h", shapes.Make(dtypes.Float32, 4, 4))
			return []*graph.Node{graph.LessThan(i, graph.Const(g, float32(3)))}
		})
		body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
			i := graph.Parameter(g, "i", shapes.Make(dtypes.Float32))
			h := graph.Parameter(g, "h", shapes.Make(dtypes.Float32, 4, 4))
			return []*graph.Node{graph.AddScalar(i, 1), graph.AddScalar(logical.Split(h, 1, 2), 1)}
		})
		return graph.While(cond, body, graph.Const(g, float32(0)), x)[1:]
	})
	assert.Contains(t, string(m.Text), `<@mesh, [{}, {"logical"}]> : tensor<4x4xf32>`)
	out := run(t, m, count(16))
	for i, v := range out[0] {
		assert.Equal(t, float32(i)+3, v)
	}
}

// TestUpdatesPastTheEndAreClampedInSplitTensors compares updates of split tensors with updates of
// replicated tensors.
func TestUpdatesPastTheEndAreClampedInSplitTensors(t *testing.T) {
	x, update := count(8), []float32{-1, -2, -3, -4}
	for _, p := range []int{1, 2, 4} {
		for n := 1; n <= 4; n++ {
			for _, at := range []float32{-3, 0, 1, 5, 7, 200} {
				m := build(t, spmd.Options{LogicalDevices: p, Target: lowering.TargetCPU}, spmd.Signature{
					Arguments: []spmd.Tensor{{}, {}, {}}, Results: []spmd.Tensor{{}, {}},
				}, func(g *graph.Graph) []*graph.Node {
					whole, part := logical.Split(param(g, "x", 8), p), graph.Slice(param(g, "u", 4), graph.AxisRange(0, n))
					from := graph.ConvertDType(param(g, "at"), dtypes.Int32)
					constant := graph.Const(g, int32(at))
					return []*graph.Node{
						logical.Split(graph.DynamicUpdateSlice(whole, part, []*graph.Node{from}), p),
						logical.Split(graph.DynamicUpdateSlice(whole, part, []*graph.Node{constant}), p),
					}
				})
				want := count(8)
				copy(want[min(max(int(at), 0), 8-n):], update[:n])
				for i, got := range run(t, m, x, update, []float32{at}) {
					assert.Equal(t, want, got, "%d values at %v over %d devices, result %d", n, at, p, i)
				}
			}
		}
	}
}

// TestPaddingsOfSplitTensors compares paddings with a split result or operand with paddings of
// replicated tensors.
func TestPaddingsOfSplitTensors(t *testing.T) {
	const n, p = 4, 2
	var pads []compute.PadAxis
	for start := -2; start < 4; start++ {
		for end := -2; end < 4; end++ {
			for gap := range 3 {
				// A result can be split if its size is divisible. XLA crops if negative paddings
				// remove more elements than the operand has.
				if size := n + (n-1)*gap + start + end; size > 0 && size%p == 0 {
					pads = append(pads, compute.PadAxis{Start: start, End: end, Interior: gap})
				}
			}
		}
	}
	pads = append(pads, compute.PadAxis{Start: -5, End: 5}, compute.PadAxis{Start: 5, End: -5}, compute.PadAxis{Start: -8,
		End: 3, Interior: 1})
	build := func(t *testing.T, logicalDevices int) *spmd.Module {
		results := make([]spmd.Tensor, 4*len(pads))
		return build(t, spmd.Options{LogicalDevices: logicalDevices, Target: lowering.TargetCPU}, spmd.Signature{
			Arguments: []spmd.Tensor{{}}, Results: results,
		}, func(g *graph.Graph) []*graph.Node {
			x := param(g, "x", n)
			var out []*graph.Node
			for _, pad := range pads {
				for _, v := range []float32{-1, -2} { // XLA may confuse the padded shards of the two
					fill := graph.Const(g, v)
					out = append(out, logical.Split(graph.Pad(x, fill, pad), logicalDevices),
						graph.Pad(logical.Split(x, logicalDevices), fill, pad))
				}
			}
			return out
		})
	}
	want := run(t, build(t, 1), count(n))
	for i, got := range run(t, build(t, p), count(n)) {
		assert.Equal(t, want[i], got, "%+v", pads[i/4])
	}
}
