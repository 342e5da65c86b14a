package gomlx_test

import (
	"runtime"
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"github.com/gomlx/gomlx/ml/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
)

const tableRows = 1 << 18 // 2 MiB of int64

func tableOf(first int64) (table *tensors.Tensor, sum int64) {
	values := make([]int64, tableRows)
	for i := range values {
		values[i] = first + int64(i*7)%tableRows
		sum += values[i]
	}
	return tensors.FromFlatDataAndDimensions(values, tableRows), sum
}

// A large constant of an unchanged GoMLX program becomes a parameter that the backend adds. The
// text is small and the results are correct, also with donated variables that are created after the
// constant.
func TestLargeConstantsAreParameters(t *testing.T) {
	for _, mesh := range []shape{alone, {"2x1", 2, 1}, {"1x2", 1, 2}, {"2x2", 2, 2}} {
		t.Run(mesh.name, func(t *testing.T) {
			var texts []string
			b := newBackend(t, mesh, gomlx.Options{OnCompiled: func(p *gomlx.CompiledProgram) {
				texts = append(texts,
					string(p.Module.Text))
			}})
			for first := range int64(2) {
				table, sum := tableOf(first)
				store := model.NewStore()
				exec, err := model.NewExec(b, store, func(scope *model.Scope, x *graph.Node) []*graph.Node {
					g := x.Graph()
					c := graph.ConstTensor(g, table)
					total := scope.In("model").VariableWithValue("total", int64(5))
					total.SetNodeValue(graph.Add(total.NodeValue(g), graph.ReduceAllSum(c)))
					body := graph.NewClosure(g, func(g *graph.Graph) []*graph.Node {
						return []*graph.Node{graph.ReduceAllMax(graph.ConstTensor(g, table))}
					})
					most := graph.If(graph.GreaterThan(graph.ReduceAllSum(x), graph.Const(g, int64(0))), body, body)[0]
					return []*graph.Node{graph.Gather(c, graph.InsertAxes(x, -1)), most}
				})
				require.NoError(t, err)
				for n := range int64(3) {
					out, err := exec.Exec([]int64{1, 2, 3, tableRows - 1})
					require.NoError(t, err)
					assert.Equal(t, []int64{first + 7, first + 14, first + 21, first + (tableRows-1)*7%tableRows}, out[0].Value())
					assert.Equal(t, first+tableRows-1, out[1].Value())
					total, err := store.GetVariable("/model/total").Value()
					require.NoError(t, err)
					assert.Equal(t, 5+(n+1)*sum, total.Value())
				}
			}
			require.NotEmpty(t, texts)
			for _, text := range texts {
				assert.Less(t, len(text), 100_000)
			}
			assert.Equal(t, texts[0], texts[len(texts)-1], "the text does not depend on the elements")
		})
	}
}

// builtSum builds the sum of a table and of a parameter on a builder.
func builtSum(t *testing.T, b *gomlx.Backend, prepare func(builder compute.Builder)) (exe compute.Executable,
	want int64) {
	t.Helper()
	builder := b.Builder("sum")
	prepare(builder)
	f := builder.Main()
	table, want := tableOf(1)
	var c compute.Value
	table.MustConstFlatData(func(flat any) {
		var err error
		c, err = f.Constant(flat, tableRows)
		require.NoError(t, err)
	})
	x, err := f.Parameter("x", shapes.Make(dtypes.Int64), nil)
	require.NoError(t, err)
	sum, err := f.ReduceSum(c, 0)
	require.NoError(t, err)
	y, err := f.Add(sum, x)
	require.NoError(t, err)
	require.NoError(t, f.Return([]compute.Value{y}, nil))
	exe, err = builder.Compile()
	require.NoError(t, err)
	names, all := exe.Inputs()
	assert.Equal(t, []string{"x"}, names)
	assert.Len(t, all, 1)
	return exe, want
}

func TestLargeConstantsOnNamedDevices(t *testing.T) {
	b := newBackend(t, shape{"4x1", 4, 1})
	one := tensor{flat: []int64{1}}
	exe, want := builtSum(t, b, func(compute.Builder) {})
	for _, num := range []compute.DeviceNum{0, 2, 2} {
		x, err := b.BufferFromFlatData(num, one.flat, one.shape())
		require.NoError(t, err)
		out, err := exe.Execute([]compute.Buffer{x}, []bool{true}, num)
		require.NoError(t, err)
		assert.Equal(t, []int64{want + 1}, flatOf(t, out[0]))
	}
	_, err := exe.Execute(nil, nil, 0)
	require.ErrorContains(t, err, "0 inputs, want 1")
	exe.Finalize()

	exe, want = builtSum(t, b, func(builder compute.Builder) { require.NoError(t, builder.DistributedSPMD(2)) })
	var inputs []compute.Buffer
	for num := range 2 {
		x, err := b.BufferFromFlatData(compute.DeviceNum(num), []int64{int64(num)}, one.shape())
		require.NoError(t, err)
		inputs = append(inputs, x)
	}
	out, err := exe.Execute(inputs, nil, 0)
	require.NoError(t, err)
	assert.Equal(t, []int64{want}, flatOf(t, out[0]))
	assert.Equal(t, []int64{want + 1}, flatOf(t, out[1]))
	for _, buf := range append(inputs, out...) {
		require.NoError(t, buf.Finalize())
	}
	live := b.NumLive()
	exe.Finalize()
	assert.Equal(t, live-2, b.NumLive(), "the program and its constant")
	runtime.KeepAlive(b)
}

// Ahead of time a program of a large constant alone still runs on this machine, and the report of a step counts
// the constant once on each device.
func TestAheadOfTimeLargeConstantsAreParameters(t *testing.T) {
	b, _ := fromConfig(t, "topology=cpu:4", gomlx.Options{})
	table, sum := tableOf(1)
	store := model.NewStore()
	first, err := model.NewExec(b, store, func(scope *model.Scope, g *graph.Graph) *graph.Node {
		total := graph.ReduceAllSum(graph.ConstTensor(g, table))
		v := scope.In("model").VariableWithValue("total", int64(0))
		v.SetNodeValue(total)
		return total
	})
	require.NoError(t, err)
	out, err := first.Exec()
	require.NoError(t, err)
	assert.Equal(t, sum, out[0].Value())
	step, err := model.NewExec(b, store, func(scope *model.Scope, x *graph.Node) *graph.Node {
		v := scope.In("model").GetVariable("total")
		rows := graph.Gather(graph.ConstTensor(x.Graph(), table), graph.InsertAxes(x, -1))
		v.SetNodeValue(graph.Add(v.NodeValue(x.Graph()), graph.ReduceAllSum(rows)))
		return v.NodeValue(x.Graph())
	})
	require.NoError(t, err)
	_, err = step.Exec([]int64{1, 2, 3, 4})
	var stopped *gomlx.AheadOfTimeError
	require.ErrorAs(t, err, &stopped)
	arguments := stopped.Explanation.Report.Memory.Arguments
	assert.GreaterOrEqual(t, arguments, int64(8*tableRows))
	assert.Less(t, arguments, int64(8*tableRows+10_000))
}
