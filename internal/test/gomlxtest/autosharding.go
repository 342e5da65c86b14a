package gomlxtest

import (
	"fmt"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/distributed"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// AutoSharding tests GoMLX's AutoSharding strategy, in which one program runs on all devices and
// its arguments are split over a mesh. The backend must have at least 8 devices.
func AutoSharding(t *testing.T, b compute.Backend) {
	run(t, b, []testCase{
		{"splits of operands", operandSplits},
		{"a result split over two axes", resultSplit},
		{"results of a call without shardings", openResults},
		{"results of a named function", namedResult},
		{"an updated variable without shardings", openVariable},
		{"a device assignment", autoAssignment},
		{"two meshes", twoMeshes},
		{"variables, replicated and split", autoVariables},
		{"a variable's first value from its initializer", autoInitializer},
		{"random numbers", autoRandom},
		{"random numbers in parts", partsRandom},
		{"gathers, sorts and loops", autoOps},
		{"a value set by SetDistributedValue", setDistributedValue},
	})
}

// product returns the matrix product of x and w.
func product(x, w [][]float32) [][]float32 {
	out := make([][]float32, len(x))
	for i := range out {
		out[i] = make([]float32, len(w[0]))
		for k := range w {
			for j := range w[k] {
				out[i][j] += x[i][k] * w[k][j]
			}
		}
	}
	return out
}

// operandSplits multiplies matrices with every split of both operands over a mesh of two axes.
func operandSplits(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{4, 2}, "replica", "logical")
	x, w := numbers(8, 8, -20), numbers(8, 8, -30)
	want := product(x, w)
	for _, c := range [][2][]string{
		{{"replica", ""}, {"", "logical"}}, {{"replica", "logical"}, {"logical", ""}},
		{{"", "replica"}, {"replica", ""}}, {{"", ""}, {"replica", "logical"}}, {{"logical"}, {}},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			exec, err := graph.NewExec(b, func(x, w *graph.Node) *graph.Node { return graph.MatMul(x, w) })
			require.NoError(t, err)
			finalized(t, exec)
			left, right := split(t, m, c[0]...), split(t, m, c[1]...)
			exec.AutoSharding(m).WithInputShardingSpecs(left, right).WithOutputShardingSpecs(split(t, m, "", ""))
			out, err := exec.DistributedCall(shard(t, left, x), shard(t, right, w))
			require.NoError(t, err)
			require.Len(t, out, 1)
			require.Len(t, out[0].Shards(), 8)
			for _, s := range out[0].Shards() {
				assert.Equal(t, want, s.Value())
			}
		})
	}
}

func resultSplit(t *testing.T, b compute.Backend) {
	// The names are not in alphabetical order.
	m := mesh(t, []int{2, 2, 2}, "z", "m", "a")
	g := graph.NewGraph(b, "split result")
	require.NoError(t, g.SetAutoSharding(m))
	x := graph.ShardedParameter(g, "x", shapes.Make(dtypes.Float32, 4, 4), split(t, m, "a", ""))
	spec, err := distributed.BuildSpec(m).S("z", "a").R().Done()
	require.NoError(t, err)
	require.NoError(t, g.CompileWithSharding([]*graph.Node{graph.Neg(x)}, []*distributed.ShardingSpec{spec}))
	whole := numbers(4, 4, 1)
	in := make([]any, 8)
	for i := range in {
		in[i] = whole[i%2*2 : i%2*2+2]
	}
	out := g.Run(in...)
	require.Len(t, out, 8)
	for i, o := range out {
		row := i/4*2 + i%2
		want := make([]float32, 4)
		for j := range want {
			want[j] = -whole[row][j]
		}
		assert.Equal(t, [][]float32{want}, o.Value(), "device %d", i)
	}
}

// namedResult calls a function that specifies the sharding of its result.
func namedResult(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{8}, "replica")
	g := graph.NewGraph(b, "named")
	require.NoError(t, g.SetAutoSharding(m))
	double := graph.NewFunctionWithSharding(g, "double", func(g *graph.Graph) ([]*graph.Node,
		[]*distributed.ShardingSpec) {
		x := graph.Parameter(g, "x", shapes.Make(dtypes.Float32, 8))
		return []*graph.Node{graph.Add(x, x)}, []*distributed.ShardingSpec{split(t, m, "replica")}
	})
	x := graph.ShardedParameter(g, "x", shapes.Make(dtypes.Float32, 8), split(t, m, "replica"))
	require.NoError(t, g.CompileWithSharding(double.Call(x), []*distributed.ShardingSpec{split(t, m, "")}))
	in := make([]any, 8)
	for i := range in {
		in[i] = []float32{float32(i)}
	}
	out := g.Run(in...)
	require.Len(t, out, 8)
	for _, o := range out {
		assert.Equal(t, []float32{0, 2, 4, 6, 8, 10, 12, 14}, o.Value())
	}
}

// openResults lets the partitioner choose the shardings of the results.
func openResults(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{8}, "replica")
	g := graph.NewGraph(b, "open")
	require.NoError(t, g.SetAutoSharding(m))
	x := graph.ShardedParameter(g, "x", shapes.Make(dtypes.Float32, 8), split(t, m, "replica"))
	require.NoError(t, g.Compile(graph.ReduceAllSum(x), graph.Concatenate([]*graph.Node{x, x}, 0)))
	in := make([]any, 8)
	for i := range in {
		in[i] = []float32{float32(i)}
	}
	out := g.Run(in...)
	require.Len(t, out, 16)
	for i := range 8 {
		assert.Equal(t, float32(28), out[2*i].Value())
		assert.Equal(t, []float32{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}, out[2*i+1].Value())
	}
}

// openVariable updates a sharded variable without specifying the shardings of the results.
func openVariable(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{8}, "replica")
	store := model.NewStore()
	v := store.VariableWithValue("/v", numbers(8, 2, 0))
	v.WithShardingSpec(split(t, m, "replica", ""))
	exec, err := model.NewExec(b, store, func(scope *model.Scope, g *graph.Graph) *graph.Node {
		v := store.GetVariable("/v")
		v.SetNodeValue(graph.AddScalar(v.NodeValue(g), 1))
		return graph.ReduceAllSum(v.NodeValue(g))
	})
	require.NoError(t, err)
	finalized(t, exec)
	exec.AutoSharding(m)
	for step := range 3 {
		out, err := exec.Call()
		require.NoError(t, err)
		assert.Equal(t, float32(120+16*(step+1)), out[0].Value())
	}
	whole, err := v.Value()
	require.NoError(t, err)
	assert.Equal(t, numbers(8, 2, 3), whole.Value())
}

func autoAssignment(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{4}, "replica")
	spec := split(t, m, "replica")
	exec, err := graph.NewExec(b, func(x *graph.Node) (*graph.Node, *graph.Node) {
		return graph.Neg(x),
			graph.ReduceAllSum(x)
	})
	require.NoError(t, err)
	finalized(t, exec)
	devices := []compute.DeviceNum{7, 1, 4, 2}
	exec.AutoSharding(m).WithInputShardingSpecs(spec).WithOutputShardingSpecs(spec,
		split(t, m)).WithDeviceAssignment(devices)
	out, err := exec.DistributedCall(shard(t, spec, []float32{1, 2, 3, 4}))
	require.NoError(t, err)
	for i, s := range out[0].Shards() {
		device, err := s.Device()
		require.NoError(t, err)
		assert.Equal(t, devices[i], device)
		assert.Equal(t, []float32{-float32(i + 1)}, s.Value())
	}
	assert.Equal(t, float32(10), out[1].Shards()[3].Value())
}

// twoMeshes splits two arguments over different meshes of the same devices.
func twoMeshes(t *testing.T, b compute.Backend) {
	flat, grid := mesh(t, []int{8}, "all"), mesh(t, []int{4, 2}, "row", "column")
	flat.SetName("flat")
	grid.SetName("grid")
	x, w := numbers(8, 4, 0), numbers(4, 8, 5)
	exec, err := graph.NewExec(b, func(x, w *graph.Node) *graph.Node { return graph.MatMul(x, w) })
	require.NoError(t, err)
	finalized(t, exec)
	left, right := split(t, flat, "all", ""), split(t, grid, "row", "column")
	unused := mesh(t, []int{2}, "some")
	unused.SetName("unused")
	exec.AutoSharding(unused, flat, grid).WithInputShardingSpecs(left, right).WithOutputShardingSpecs(split(t, flat, "",
		""))
	out, err := exec.DistributedCall(shard(t, left, x), shard(t, right, w))
	require.NoError(t, err)
	assert.Equal(t, product(x, w), out[0].Shards()[5].Value())
}

// autoVariables updates variables for some steps. The program specifies the shardings of the
// updated variables.
func autoVariables(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{2, 4}, "replica", "logical")
	store := model.NewStore()
	store.VariableWithValue("/same", []float32{1, 2})
	w := store.VariableWithValue("/w", numbers(4, 8, 0))
	columns := split(t, m, "", "logical")
	w.WithShardingSpec(columns)
	exec, err := model.NewExec(b, store, func(scope *model.Scope, x *graph.Node) *graph.Node {
		g := x.Graph()
		same, w := store.GetVariable("/same"), store.GetVariable("/w")
		y := graph.MatMul(x, w.NodeValue(g))
		same.SetNodeValue(graph.AddScalar(same.NodeValue(g), 1))
		w.SetNodeValue(graph.MulScalar(w.NodeValue(g), 2))
		return graph.Add(graph.ReduceAllSum(y), graph.ReduceAllSum(same.NodeValue(g)))
	})
	require.NoError(t, err)
	finalized(t, exec)
	rows := split(t, m, "replica", "")
	x := numbers(2, 4, 1)
	// The variables precede the other values, in the order of the store.
	exec.AutoSharding(m).WithInputShardingSpecs(rows).WithOutputShardingSpecs(split(t, m), columns, split(t, m))
	for step := range 3 {
		out, err := exec.DistributedExec(shard(t, rows, x))
		require.NoError(t, err, "step %d", step)
		want := float32(3 + 2*(step+1))
		for _, row := range product(x, numbers(4, 8, 0)) {
			for _, v := range row {
				want += v * float32(int(1)<<step)
			}
		}
		for _, s := range out[0].Shards() {
			assert.Equal(t, want, s.Value(), "step %d", step)
		}
		assert.Equal(t, []int{4, 2}, w.ShardShape().Dimensions)
	}
	same, err := store.GetVariable("/same").Value()
	require.NoError(t, err)
	assert.Equal(t, []float32{4, 5}, same.Value())
	whole, err := w.Value()
	require.NoError(t, err)
	want := numbers(4, 8, 0)
	for i := range want {
		for j := range want[i] {
			want[i][j] *= 8
		}
	}
	assert.Equal(t, want, whole.Value())
}

func autoInitializer(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{8}, "replica")
	store := model.NewStore()
	store.SetParam(model.ParamInitialSeed, int64(3))
	exec, err := model.NewExec(b, store, func(scope *model.Scope, x *graph.Node) *graph.Node {
		w := scope.VariableWithShape("w", shapes.Make(dtypes.Float32, 8, 16))
		w.WithShardingSpec(split(t, m, "replica", ""))
		return graph.MatMul(x, w.NodeValue(x.Graph()))
	})
	require.NoError(t, err)
	finalized(t, exec)
	exec.AutoSharding(m).WithOutputShardingSpecs(split(t, m))
	x := make([]any, 8)
	for i := range x {
		x[i] = numbers(2, 8, 0)
	}
	out, err := exec.Call(x...)
	require.NoError(t, err)
	w, err := store.GetVariable("/w").Value()
	require.NoError(t, err)
	want := product(numbers(2, 8, 0), w.Value().([][]float32))
	for i, row := range out[7].Value().([][]float32) {
		assert.InDeltaSlice(t, want[i], row, 1e-3)
	}
}

// autoRandom checks that random numbers do not depend on the sharding.
func autoRandom(t *testing.T, b compute.Backend) {
	draw := func(m *distributed.DeviceMesh) [][]float32 {
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(5))
		exec, err := model.NewExec(b, store, func(scope *model.Scope, x *graph.Node) *graph.Node {
			return graph.Add(x, scope.RandomUniform(x.Graph(), x.Shape()))
		})
		require.NoError(t, err)
		finalized(t, exec)
		if m == nil {
			return exec.MustCall1(numbers(8, 4, 0)).Value().([][]float32)
		}
		rows := split(t, m, "replica", "")
		exec.AutoSharding(m).WithInputShardingSpecs(rows).WithOutputShardingSpecs(split(t, m))
		out, err := exec.DistributedExec(shard(t, rows, numbers(8, 4, 0)))
		require.NoError(t, err)
		return out[0].Shards()[3].Value().([][]float32)
	}
	assert.Equal(t, draw(nil), draw(mesh(t, []int{8}, "replica")))
}

// partsRandom specifies a sharding of the results that is not valid for the state of the random
// number generator. GoMLX returns the state with the same sharding.
func partsRandom(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{8}, "replica")
	draw := func(spec *distributed.ShardingSpec) (drawn [][]float32) {
		store := model.NewStore()
		store.SetParam(model.ParamInitialSeed, int64(5))
		exec, err := model.NewExec(b, store, func(scope *model.Scope, g *graph.Graph) *graph.Node {
			return scope.RandomUniform(g, shapes.Make(dtypes.Float32, 8))
		})
		require.NoError(t, err)
		finalized(t, exec)
		exec.AutoSharding(m).WithOutputShardingSpecs(spec)
		for range 2 {
			out, err := exec.Call()
			require.NoError(t, err)
			require.Len(t, out, 8)
			row := []float32{}
			for _, o := range out[:8/out[0].Shape().Dim(0)] {
				row = append(row, o.Value().([]float32)...)
			}
			drawn = append(drawn, row)
		}
		return drawn
	}
	whole := draw(split(t, m))
	assert.NotEqual(t, whole[0], whole[1], "the state moved on")
	assert.Equal(t, whole, draw(split(t, m, "replica")))
}

// autoOps tests sharded operations that partitioners compute incorrectly or that make them crash.
func autoOps(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{4, 2}, "replica", "logical")
	program := func(x, i *graph.Node) []*graph.Node {
		sorted := graph.Sort(x, 0, true)
		rows := graph.Gather(x, i)
		cumulative := graph.CumSum(x, 0)
		scattered := graph.ScatterSum(graph.ZerosLike(x), i, rows, false, false)
		return []*graph.Node{sorted, rows, cumulative, scattered, graph.ArgMax(x, 0), graph.Reverse(x, 0),
			graph.Concatenate([]*graph.Node{x, rows}, 0), graph.Slice(x, graph.AxisRange(1, 6))}
	}
	x := [][]float32{{3, 1}, {9, 4}, {-1, 7}, {5, 5}, {0, 2}, {8, -3}, {2, 2}, {4, 6}}
	i := [][]int32{{7}, {0}, {3}, {3}, {6}, {1}, {2}, {5}}
	one, err := graph.NewExec(b, func(in []*graph.Node) []*graph.Node { return program(in[0], in[1]) })
	require.NoError(t, err)
	finalized(t, one)
	want, err := one.Call(x, i)
	require.NoError(t, err)
	for _, specs := range [][2][]string{{{"replica", ""}, {"replica", ""}}, {{"replica", "logical"}, {"logical"}}} {
		t.Run(fmt.Sprint(specs), func(t *testing.T) {
			exec, err := graph.NewExec(b, func(in []*graph.Node) []*graph.Node { return program(in[0], in[1]) })
			require.NoError(t, err)
			finalized(t, exec)
			left, right := split(t, m, specs[0]...), split(t, m, specs[1]...)
			exec.AutoSharding(m).WithInputShardingSpecs(left, right).WithOutputShardingSpecs(split(t, m))
			out, err := exec.DistributedCall(shard(t, left, x), shard(t, right, i))
			require.NoError(t, err)
			require.Len(t, out, len(want))
			for o := range want {
				assert.Equal(t, want[o].Value(), out[o].Shards()[1].Value(), "result %d", o)
			}
		})
	}
}

func setDistributedValue(t *testing.T, b compute.Backend) {
	m := mesh(t, []int{4}, "replica")
	store := model.NewStore()
	v := store.VariableWithValue("/v", []float32{0, 0, 0, 0})
	spec := split(t, m, "replica")
	require.NoError(t, v.SetDistributedValue(shard(t, spec, []float32{1, 2, 3, 4})))
	assert.Equal(t, spec, v.ShardingSpec())
	require.Error(t, v.SetShardingSpec(split(t, m, "")))
	exec, err := model.NewExec(b, store, func(scope *model.Scope, g *graph.Graph) *graph.Node {
		return graph.ReduceAllSum(store.GetVariable("/v").NodeValue(g))
	})
	require.NoError(t, err)
	finalized(t, exec)
	exec.AutoSharding(m).WithOutputShardingSpecs(split(t, m))
	out, err := exec.Call()
	require.NoError(t, err)
	assert.Equal(t, float32(10), out[2].Value())
	whole, err := v.Value()
	require.NoError(t, err)
	assert.Equal(t, []float32{1, 2, 3, 4}, whole.Value())
}
