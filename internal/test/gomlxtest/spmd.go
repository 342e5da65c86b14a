package gomlxtest

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/core/tensors/dtensor"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// SPMD tests GoMLX's SPMD strategy, in which each device runs the program on its own tensors and
// the program contains the collectives. The backend must have at least 8 devices.
func SPMD(t *testing.T, b compute.Backend) {
	run(t, b, []testCase{
		{"all-reduce of each kind", allReduceKinds},
		{"all-reduce of several dtypes", allReduceDTypes},
		{"all-reduce along an axis", allReduceAlong},
		{"all-reduce of a graph for one device", allReduceOnOne},
		{"a call with dtensors", spmdDTensors},
		{"a device assignment", spmdAssignment},
		{"variables, replicated and split", spmdVariables},
		{"a call with shards that differ in shape", spmdUneven},
	})
}

// mesh returns a mesh with the given axis sizes and names.
func mesh(t testing.TB, sizes []int, names ...string) *distributed.DeviceMesh {
	t.Helper()
	m, err := distributed.NewDeviceMesh(sizes, names)
	require.NoError(t, err)
	return m
}

// split returns a sharding over a mesh. axes contains the mesh axis of each tensor dimension, or ""
// for dimensions that are not split.
func split(t testing.TB, m *distributed.DeviceMesh, axes ...string) *distributed.ShardingSpec {
	t.Helper()
	build := distributed.BuildSpec(m)
	for _, axis := range axes {
		if axis == "" {
			build.R()
		} else {
			build.S(axis)
		}
	}
	spec, err := build.Done()
	require.NoError(t, err)
	return spec
}

// shard splits a value according to a sharding.
func shard(t testing.TB, spec *distributed.ShardingSpec, value any) *dtensor.Tensor {
	t.Helper()
	d, err := dtensor.ShardTensor(spec, tensors.MustFromAnyValue(value))
	require.NoError(t, err)
	return d
}

// numbers returns a matrix of consecutive numbers from start.
func numbers(rows, columns int, start float32) [][]float32 {
	out := make([][]float32, rows)
	for i := range out {
		for j := range columns {
			out[i] = append(out[i], start+float32(i*columns+j))
		}
	}
	return out
}

func allReduceKinds(t *testing.T, b compute.Backend) {
	for _, c := range []struct {
		name string
		kind compute.ReduceOpType
		want float32
	}{
		{"sum", compute.ReduceOpSum, 10}, {"product", compute.ReduceOpProduct, 24},
		{"max", compute.ReduceOpMax, 4}, {"min", compute.ReduceOpMin, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := graph.NewGraph(b, "kinds")
			require.NoError(t, g.SetSPMD(mesh(t, []int{4}, "replica")))
			x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32))
			require.NoError(t, g.Compile(g.Distributed().AllReduceOne(x, c.kind)))
			out := g.Run(float32(1), float32(2), float32(3), float32(4))
			require.Len(t, out, 4)
			for _, o := range out {
				assert.Equal(t, c.want, o.Value())
			}
		})
	}
}

func allReduceDTypes(t *testing.T, b compute.Backend) {
	g := graph.NewGraph(b, "dtypes")
	require.NoError(t, g.SetSPMD(mesh(t, []int{2}, "replica")))
	var in []*graph.Node
	for i, d := range []dtypes.DType{dtypes.Float32, dtypes.Int32, dtypes.Float64, dtypes.Float32, dtypes.Int64,
		dtypes.Int32} {
		in = append(in, graph.Parameter(g, string(rune('a'+i)), shapes.Make(d)))
	}
	require.NoError(t, g.Compile(g.Distributed().AllReduce(in, compute.ReduceOpSum)...))
	out := g.Run(float32(1), int32(2), float64(3), float32(4), int64(5), int32(6),
		float32(10), int32(20), float64(30), float32(40), int64(50), int32(60))
	require.Len(t, out, 12)
	for i, want := range []any{float32(11), int32(22), float64(33), float32(44), int64(55), int32(66)} {
		assert.Equal(t, want, out[i].Value())
		assert.Equal(t, want, out[6+i].Value())
	}
}

// allReduceAlong reduces over each axis of a mesh with two axes, and over both.
func allReduceAlong(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{2, 4}, "row", "column")
	g := graph.NewGraph(b, "along")
	require.NoError(t, g.SetSPMD(m))
	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32))
	require.NoError(t, g.Compile(
		g.Distributed().Along("row").AllReduceOne(x, compute.ReduceOpSum),
		g.Distributed().Along("column").AllReduceOne(x, compute.ReduceOpSum),
		g.Distributed().AllReduceOne(x, compute.ReduceOpSum)))
	in := make([]any, 8)
	for i := range in {
		in[i] = float32(i)
	}
	out := g.Run(in...)
	require.Len(t, out, 24)
	for i := range 8 {
		row, column := i/4, i%4
		assert.Equal(t, float32(2*column+4), out[3*i].Value(), "device %d", i)
		assert.Equal(t, float32(16*row+6), out[3*i+1].Value(), "device %d", i)
		assert.Equal(t, float32(28), out[3*i+2].Value(), "device %d", i)
	}
}

// allReduceOnOne uses a collective without a mesh. GoMLX panics before it calls the backend.
func allReduceOnOne(t *testing.T, b compute.Backend) {
	exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node {
		return x.Graph().Distributed().AllReduceOne(x, compute.ReduceOpSum)
	})
	require.NoError(t, err)
	finalized(t, exec)
	_, err = exec.Call(float32(1))
	require.Error(t, err)
}

func spmdDTensors(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{8}, "replica")
	exec, err := graph.NewExec(b, func(x *graph.Node) (*graph.Node, *graph.Node) {
		sum := graph.ReduceAllSum(x)
		return graph.MulScalar(x, 2), x.Graph().Distributed().AllReduceOne(sum, compute.ReduceOpSum)
	})
	require.NoError(t, err)
	finalized(t, exec)
	rows := split(t, m, "replica", "")
	exec.SPMD(m).WithInputShardingSpecs(rows).WithOutputShardingSpecs(rows, split(t, m))
	out, err := exec.DistributedCall(shard(t, rows, numbers(8, 2, 0)))
	require.NoError(t, err)
	require.Len(t, out, 2)
	whole, err := out[0].Merge()
	require.NoError(t, err)
	want := numbers(8, 2, 0)
	for i := range want {
		want[i][0], want[i][1] = 2*want[i][0], 2*want[i][1]
	}
	assert.Equal(t, want, whole.Value())
	for _, s := range out[1].Shards() {
		assert.Equal(t, float32(120), s.Value())
	}
}

// spmdAssignment runs a program with a device assignment and checks the devices of the results.
func spmdAssignment(t *testing.T, b compute.Backend) {
	g := graph.NewGraph(b, "assigned")
	require.NoError(t, g.SetSPMD(mesh(t, []int{2}, "replica")))
	devices := []compute.DeviceNum{5, 2}
	require.NoError(t, g.SetDeviceAssignment(devices))
	x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32))
	require.NoError(t, g.Compile(graph.Neg(x), g.Distributed().AllReduceOne(x, compute.ReduceOpSum)))
	out := g.Run(float32(1), float32(2))
	require.Len(t, out, 4)
	for i, want := range []float32{-1, 3, -2, 3} {
		device, err := out[i].Device()
		require.NoError(t, err)
		assert.Equal(t, devices[i/2], device)
		assert.Equal(t, want, out[i].Value())
	}
}

// spmdVariables updates a replicated and a sharded variable.
func spmdVariables(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{4}, "replica")
	store := model.NewStore()
	store.VariableWithValue("/same", []float32{1, 2}).SetTrainable(false)
	part := store.VariableWithValue("/part", []float32{0, 1, 2, 3, 4, 5, 6, 7})
	part.WithShardingSpec(split(t, m, "replica"))
	exec, err := model.NewExec(b, store, func(scope *model.Scope, x *graph.Node) *graph.Node {
		g := x.Graph()
		same, part := store.GetVariable("/same"), store.GetVariable("/part")
		sum := g.Distributed().AllReduceOne(x, compute.ReduceOpSum)
		same.SetNodeValue(graph.Add(same.NodeValue(g), sum))
		part.SetNodeValue(graph.Add(part.NodeValue(g), x))
		return graph.ReduceAllSum(part.NodeValue(g))
	})
	require.NoError(t, err)
	finalized(t, exec)
	exec.SPMD(m)
	for step := range 3 {
		out, err := exec.Call(float32(1), float32(2), float32(3), float32(4))
		require.NoError(t, err)
		require.Len(t, out, 4)
		for i, o := range out {
			assert.Equal(t, float32(4*i+1+2*(step+1)*(i+1)), o.Value(), "step %d, device %d", step, i)
		}
	}
	same, err := store.GetVariable("/same").Value()
	require.NoError(t, err)
	assert.Equal(t, []float32{31, 32}, same.Value())
	whole, err := store.GetVariable("/part").Value()
	require.NoError(t, err)
	assert.Equal(t, []float32{3, 4, 8, 9, 13, 14, 18, 19}, whole.Value())
}

func spmdUneven(t *testing.T, b compute.Backend) {
	exec, err := graph.NewExec(b, func(x *graph.Node) *graph.Node { return graph.Neg(x) })
	require.NoError(t, err)
	finalized(t, exec)
	_, err = exec.SPMD(mesh(t, []int{2}, "replica")).Call([]float32{1, 2}, []float32{1, 2, 3})
	require.Error(t, err)
}
