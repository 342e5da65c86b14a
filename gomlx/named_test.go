package gomlx_test

import (
	"testing"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

var (
	pair = []tensor{
		{flat: []float32{1, 2, 3, 4}, dims: []int{4}},
		{flat: []float32{10, 20, 30, 40}, dims: []int{4}},
	}
	four = shape{"4x1", 4, 1}
)

// on makes a buffer of x for a device, and at holds a result to its device and value.
func on(t *testing.T, b compute.Backend, num compute.DeviceNum, x tensor) compute.Buffer {
	t.Helper()
	buf, err := b.BufferFromFlatData(num, x.flat, x.shape())
	require.NoError(t, err)
	return buf
}

func at(t *testing.T, num compute.DeviceNum, want []float32, buf compute.Buffer) {
	t.Helper()
	got, err := buf.DeviceNum()
	require.NoError(t, err)
	assert.Equal(t, num, got)
	assert.Equal(t, want, flatOf(t, buf))
}

// TestProgramsRunOnTheDeviceAskedFor executes one program on all devices, and on each other one
// alone, with inputs for it and for another, of which one is donated.
func TestProgramsRunOnTheDeviceAskedFor(t *testing.T) {
	b := newBackend(t, grid)
	require.Equal(t, 8, b.NumDevices())
	exe := compiledOf(t, b, pair, addSub(t))
	for num := range compute.DeviceNum(8) {
		assert.NotEmpty(t, b.DeviceDescription(num))
		other := (num + 1) % 8
		x, y := on(t, b, num, pair[0]), on(t, b, other, pair[1])
		for range 2 {
			out, err := exe.Execute([]compute.Buffer{x, y}, nil, num)
			require.NoError(t, err)
			at(t, num, []float32{11, 22, 33, 44}, out[0])
			at(t, num, []float32{-9, -18, -27, -36}, out[1])
			moved, err := out[0].CopyToDevice(other)
			require.NoError(t, err)
			_, err = out[0].CopyToDevice(num)
			assert.ErrorContains(t, err, "already")
			require.NoError(t, out[0].Finalize())
			require.NoError(t, out[0].Finalize(), "twice")
			at(t, other, []float32{11, 22, 33, 44}, moved)
		}
		out, err := exe.Execute([]compute.Buffer{x, y}, []bool{false, true}, num)
		require.NoError(t, err)
		at(t, num, []float32{11, 22, 33, 44}, out[0])
		assert.ErrorIs(t, y.ToFlatData(make([]float32, 4)), gomlx.ErrDonated)
		at(t, num, []float32{1, 2, 3, 4}, x)
	}
}

func TestAssignedProgramsStayOnTheirDevice(t *testing.T) {
	b := newBackend(t, four)
	builder := b.Builder("assigned")
	require.NoError(t, builder.DeviceAssignment(2))
	x := must(t)(builder.Main().Parameter("x", pair[0].shape(), nil))
	require.NoError(t, builder.Main().Return([]compute.Value{must(t)(builder.Main().Neg(x))}, nil))
	exe, err := builder.Compile()
	require.NoError(t, err)
	out, err := exe.Execute([]compute.Buffer{on(t, b, 2, pair[0])}, nil, 0)
	require.NoError(t, err)
	at(t, 2, []float32{-1, -2, -3, -4}, out[0])
}

// TestReplicasReduceTogether donates on one of two devices: on that one the buffer is gone.
func TestReplicasReduceTogether(t *testing.T) {
	b := newBackend(t, four)
	builder := b.Builder("spmd")
	require.NoError(t, builder.DistributedSPMD(2))
	require.NoError(t, builder.DeviceAssignment(3, 1))
	f := builder.Main()
	x := must(t)(f.Parameter("x", pair[0].shape(), nil))
	sum, err := f.AllReduce([]compute.Value{x}, compute.ReduceOpSum, [][]int{{0, 1}})
	require.NoError(t, err)
	require.NoError(t, f.Return(sum, nil))
	exe, err := builder.Compile()
	require.NoError(t, err)
	in := []compute.Buffer{on(t, b, 3, pair[0]), on(t, b, 1, pair[1])}
	_, err = exe.Execute([]compute.Buffer{in[0], on(t, b, 1, tensor{flat: []float32{1}, dims: []int{1}})}, nil, 0)
	assert.ErrorContains(t, err, `parameter "x" of device 1, is (Float32)[1], want (Float32)[4]`)
	out, err := exe.Execute(in, []bool{true, false}, 0)
	require.NoError(t, err)
	require.Len(t, out, 2)
	at(t, 3, []float32{11, 22, 33, 44}, out[0])
	at(t, 1, []float32{11, 22, 33, 44}, out[1])
	assert.ErrorIs(t, in[0].ToFlatData(make([]float32, 4)), gomlx.ErrDonated)
	at(t, 1, []float32{10, 20, 30, 40}, in[1])
	out, err = exe.Execute([]compute.Buffer{in[1], in[1]}, nil, 0)
	require.NoError(t, err, "one buffer for both devices")
	at(t, 3, []float32{20, 40, 60, 80}, out[0])
}

func TestAutoShardingSplitsArguments(t *testing.T) {
	b := newBackend(t, four)
	builder := b.Builder("sharded")
	require.NoError(t, builder.DistributedAutoSharding(compute.Mesh{Name: "mesh", AxesNames: []string{"x"},
		AxesSizes: []int{2}}))
	spec := &compute.ShardingSpec{Mesh: "mesh", Axes: [][]string{{"x"}}}
	f := builder.Main()
	x := must(t)(f.Parameter("x", shapes.Make(dtypes.Float32, 4), spec))
	require.NoError(t, f.Return([]compute.Value{must(t)(f.Neg(x)), must(t)(f.ReduceSum(x))}, []*compute.ShardingSpec{spec,
		nil}))
	exe, err := builder.Compile()
	require.NoError(t, err)
	var in []compute.Buffer
	for num, part := range [][]float32{{1, 2}, {3, 4}} {
		in = append(in, on(t, b, compute.DeviceNum(num), tensor{flat: part, dims: []int{2}}))
	}
	out, err := exe.Execute(in, nil, 0)
	require.NoError(t, err)
	require.Len(t, out, 4)
	at(t, 0, []float32{-1, -2}, out[0])
	at(t, 0, []float32{10}, out[1])
	at(t, 1, []float32{-3, -4}, out[2])
	at(t, 1, []float32{10}, out[3])
}

// TestDonatedInputsSaveMemory reads from the compiled programs how much of the arguments the results
// take.
func TestDonatedInputsSaveMemory(t *testing.T) {
	for _, test := range []struct {
		donate []bool
		want   int64
	}{{nil, 0}, {[]bool{true, false}, 16}, {[]bool{true, true}, 32}} {
		var stats pjrt.CompiledMemoryStats
		b := newBackend(t, alone, gomlx.Options{OnCompiled: func(c *gomlx.CompiledProgram) {
			var err error
			stats, err = c.Program.MemoryStats()
			assert.NoError(t, err)
		}})
		out, err := compiledOf(t, b, pair, addSub(t)).Execute([]compute.Buffer{put(t, b, pair[0]), put(t, b, pair[1])},
			test.donate, 0)
		require.NoError(t, err)
		at(t, 0, []float32{-9, -18, -27, -36}, out[1])
		assert.Equal(t, test.want, stats.Alias, "donating %v", test.donate)
	}
}

// TestZeroOptionsAreOneCPUDevice makes backends of nothing, and of the name that the package registers.
func TestZeroOptionsAreOneCPUDevice(t *testing.T) {
	path := plugintest.Path(t, "cpu")
	gomlx.Register("tpustrategy-zero", gomlx.Options{})
	for name, open := range map[string]func() (compute.Backend, error){
		"no config":  func() (compute.Backend, error) { return gomlx.NewFromConfig(t.Context(), "cpu", gomlx.Options{}) },
		"registered": func() (compute.Backend, error) { return compute.NewWithConfig("tpustrategy-zero:cpu") },
		"by the package": func() (compute.Backend, error) {
			return compute.NewWithConfig(gomlx.BackendName + ":" + path + ",devices=1")
		},
	} {
		b, err := open()
		require.NoError(t, err, name)
		assert.Equal(t, 1, b.NumDevices(), name)
		assert.Equal(t, pair[0].flat, flatOf(t, put(t, b, pair[0])), name)
		require.NoError(t, b.(*gomlx.Backend).Close(), "%s: its devices are its own", name)
	}
	_, err := compute.NewWithConfig("tpustrategy-zero:/no/such/plugin.so")
	assert.ErrorContains(t, err, "/no/such/plugin.so")
	t.Setenv("TPUSTRATEGY_CPU_PLUGIN", path+".gone")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err = gomlx.NewFromConfig(t.Context(), "cpu", gomlx.Options{})
	var missing *pjrt.FindError
	require.ErrorAs(t, err, &missing)
	assert.ErrorContains(t, err, path+".gone")
}

func BenchmarkExecute(b *testing.B) {
	back := newBackend(b, alone)
	exe := compiledOf(b, back, pair, addSub(b))
	in := []compute.Buffer{put(b, back, pair[0]), put(b, back, pair[1])}
	b.ReportAllocs()
	for b.Loop() {
		out, err := exe.Execute(in, nil, 0)
		if err != nil {
			b.Fatal(err)
		}
		for _, buf := range out {
			_ = buf.Finalize()
		}
	}
}
