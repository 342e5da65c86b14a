package backend_test

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/lowering"
	"github.com/tpustrategy/tpustrategy/lowering/backend"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

var pair = []tensor{
	{flat: []float32{1, 2, 3, 4}, dims: []int{4}},
	{flat: []float32{10, 20, 30, 40}, dims: []int{4}},
}

// addSub returns the sum and the difference of two parameters.
func addSub(t testing.TB) func(f compute.Function, x []compute.Value) []compute.Value {
	return func(f compute.Function, x []compute.Value) []compute.Value {
		do := must(t)
		return []compute.Value{do(f.Add(x[0], x[1])), do(f.Sub(x[0], x[1]))}
	}
}

func TestDonatedInputsAreGone(t *testing.T) {
	for name, opts := range map[string]backend.Options{"freed": {}, "aliased": {AliasDonated: true}} {
		t.Run(name, func(t *testing.T) {
			b := newBackend(t, opts)
			exe := compile(t, b, pair, addSub(t))
			x, y := buffer(t, b, pair[0]), buffer(t, b, pair[1])
			out, err := exe.Execute([]compute.Buffer{x, y}, []bool{true, false}, 0)
			require.NoError(t, err)
			assert.Equal(t, []float32{11, 22, 33, 44}, flat(t, out[0]))
			assert.Equal(t, []float32{-9, -18, -27, -36}, flat(t, out[1]))

			assert.ErrorIs(t, x.ToFlatData(make([]float32, 4)), pjrt.ErrDonated)
			assert.NoError(t, x.Finalize(), "finalizing a donated buffer does nothing")
			assert.Equal(t, pair[1].flat, flat(t, y), "what was not donated stays")

			// Another set of donated inputs, and none.
			out, err = exe.Execute([]compute.Buffer{y, y}, nil, 0)
			require.NoError(t, err)
			assert.Equal(t, []float32{20, 40, 60, 80}, flat(t, out[0]))
			_, err = exe.Execute([]compute.Buffer{y, y}, []bool{true, false}, 0)
			assert.Error(t, err, "donated and also passed elsewhere")
			assert.Equal(t, pair[1].flat, flat(t, y), "an error in the arguments leaves them as they were")
			out, err = exe.Execute([]compute.Buffer{buffer(t, b, pair[0]), y}, []bool{false, true}, 0)
			require.NoError(t, err)
			assert.Equal(t, []float32{11, 22, 33, 44}, flat(t, out[0]))
		})
	}
}

// TestAliasDonatedSavesMemory reads from the compiled programs how much of the arguments the
// results take.
func TestAliasDonatedSavesMemory(t *testing.T) {
	for _, test := range []struct {
		opts   backend.Options
		donate []bool
		want   int64
	}{
		{backend.Options{}, []bool{true, true}, 0},
		{backend.Options{AliasDonated: true}, nil, 0},
		{backend.Options{AliasDonated: true}, []bool{true, false}, 16},
		{backend.Options{AliasDonated: true}, []bool{true, true}, 32},
	} {
		b := newBackend(t, test.opts)
		exe := compile(t, b, pair, addSub(t))
		_, err := exe.Execute([]compute.Buffer{buffer(t, b, pair[0]), buffer(t, b, pair[1])}, test.donate, 0)
		require.NoError(t, err)
		stats, err := exe.(*backend.Executable).MemoryStats()
		require.NoError(t, err)
		assert.EqualValues(t, test.want, stats.Alias, "%+v donating %v", test.opts, test.donate)
	}
}

func TestProgramsRunOnTheDeviceAskedFor(t *testing.T) {
	b := newBackend(t)
	require.Equal(t, 4, b.NumDevices())
	exe := compile(t, b, pair, addSub(t))
	for num := range compute.DeviceNum(4) {
		in := make([]compute.Buffer, 2)
		for i, x := range pair {
			var err error
			in[i], err = b.BufferFromFlatData(num, x.flat, x.shape())
			require.NoError(t, err)
		}
		out, err := exe.Execute(in, nil, num)
		require.NoError(t, err)
		got, err := out[0].DeviceNum()
		require.NoError(t, err)
		assert.Equal(t, num, got)
		assert.Equal(t, []float32{11, 22, 33, 44}, flat(t, out[0]))
		assert.NotEmpty(t, b.DeviceDescription(num))

		other := (num + 1) % 4
		_, err = exe.Execute(in, nil, other)
		assert.Error(t, err, "inputs on another device")
		moved, err := out[0].CopyToDevice(other)
		require.NoError(t, err)
		assert.Equal(t, []float32{11, 22, 33, 44}, flat(t, moved))
		_, err = out[0].CopyToDevice(num)
		assert.ErrorContains(t, err, "holds it already")
	}
	_, err := exe.Execute([]compute.Buffer{buffer(t, b, pair[0]), buffer(t, b, pair[1])}, nil, 4)
	assert.ErrorContains(t, err, "not in [0, 4)")
}

func TestAssignedProgramsStayOnTheirDevice(t *testing.T) {
	b := newBackend(t)
	builder := b.Builder("assigned")
	require.NoError(t, builder.DeviceAssignment(2))
	x := must(t)(builder.Main().Parameter("x", pair[0].shape(), nil))
	require.NoError(t, builder.Main().Return([]compute.Value{must(t)(builder.Main().Neg(x))}, nil))
	exe, err := builder.Compile()
	require.NoError(t, err)
	in, err := b.BufferFromFlatData(2, pair[0].flat, pair[0].shape())
	require.NoError(t, err)
	out, err := exe.Execute([]compute.Buffer{in}, nil, 0)
	require.NoError(t, err)
	num, err := out[0].DeviceNum()
	require.NoError(t, err)
	assert.EqualValues(t, 2, num)
}

func TestReplicasReduceTogether(t *testing.T) {
	b := newBackend(t)
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
	var in []compute.Buffer
	for i, num := range []compute.DeviceNum{3, 1} {
		buf, err := b.BufferFromFlatData(num, pair[i].flat, pair[i].shape())
		require.NoError(t, err)
		in = append(in, buf)
	}
	_, err = exe.Execute(in, []bool{true, false}, 0)
	assert.ErrorContains(t, err, "some devices only")
	out, err := exe.Execute(in, []bool{true, true}, 0)
	require.NoError(t, err)
	require.Len(t, out, 2)
	for i, num := range []compute.DeviceNum{3, 1} {
		assert.Equal(t, []float32{11, 22, 33, 44}, flat(t, out[i]))
		got, err := out[i].DeviceNum()
		require.NoError(t, err)
		assert.Equal(t, num, got)
	}
}

func TestAutoShardingSplitsArguments(t *testing.T) {
	b := newBackend(t)
	builder := b.Builder("sharded")
	require.NoError(t, builder.DistributedAutoSharding(compute.Mesh{Name: "mesh", AxesNames: []string{"x"}, AxesSizes: []int{2}}))
	spec := &compute.ShardingSpec{Mesh: "mesh", Axes: [][]string{{"x"}}}
	f := builder.Main()
	x := must(t)(f.Parameter("x", shapes.Make(dtypes.Float32, 4), spec))
	require.NoError(t, f.Return([]compute.Value{must(t)(f.Neg(x)), must(t)(f.ReduceSum(x))}, []*compute.ShardingSpec{spec, nil}))
	exe, err := builder.Compile()
	require.NoError(t, err)
	var in []compute.Buffer
	for num, part := range [][]float32{{1, 2}, {3, 4}} {
		buf, err := b.BufferFromFlatData(compute.DeviceNum(num), part, shapes.Make(dtypes.Float32, 2))
		require.NoError(t, err)
		in = append(in, buf)
	}
	out, err := exe.Execute(in, nil, 0)
	require.NoError(t, err)
	require.Len(t, out, 4)
	assert.Equal(t, []float32{-1, -2}, flat(t, out[0]))
	assert.Equal(t, []float32{10}, flat(t, out[1]))
	assert.Equal(t, []float32{-3, -4}, flat(t, out[2]))
}

func TestWrongInputsAreErrors(t *testing.T) {
	b, stranger := newBackend(t), newBackend(t)
	exe := compile(t, b, pair, addSub(t))
	x, y := buffer(t, b, pair[0]), buffer(t, b, pair[1])
	short := buffer(t, b, tensor{flat: []float32{1}, dims: []int{1}})
	ints := buffer(t, b, tensor{flat: []int32{1, 2, 3, 4}, dims: []int{4}})
	gone := buffer(t, b, pair[0])
	require.NoError(t, gone.Finalize())
	require.NoError(t, gone.Finalize(), "twice is fine")
	for _, test := range []struct {
		name   string
		in     []compute.Buffer
		donate []bool
		want   string
	}{
		{"too few", []compute.Buffer{x}, nil, "1 inputs, want 2"},
		{"too many", []compute.Buffer{x, y, y}, nil, "3 inputs, want 2"},
		{"flags missing", []compute.Buffer{x, y}, []bool{true}, "1 donate flags for 2 inputs"},
		{"nil", []compute.Buffer{x, nil}, nil, "input 1 is a <nil>"},
		{"other dimensions", []compute.Buffer{x, short}, nil, `input 1, parameter "x1", is (Float32)[1], want (Float32)[4]`},
		{"other dtype of the same size", []compute.Buffer{ints, y}, nil, "is (Int32)[4], want (Float32)[4]"},
		{"of another backend", []compute.Buffer{x, buffer(t, stranger, pair[1])}, nil, "another backend"},
		{"finalized", []compute.Buffer{gone, y}, nil, "closed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := exe.Execute(test.in, test.donate, 0)
			assert.ErrorContains(t, err, test.want)
		})
	}
	out, err := exe.Execute([]compute.Buffer{x, y}, nil, 0)
	require.NoError(t, err, "and the program still runs")
	assert.Equal(t, []float32{11, 22, 33, 44}, flat(t, out[0]))
}

func TestWrongTransfersAreErrors(t *testing.T) {
	b := newBackend(t)
	four := shapes.Make(dtypes.Float32, 4)
	for _, test := range []struct {
		name  string
		num   compute.DeviceNum
		flat  any
		shape shapes.Shape
		want  string
	}{
		{"no such device", 9, []float32{1, 2, 3, 4}, four, "device 9"},
		{"negative device", -1, []float32{1, 2, 3, 4}, four, "device -1"},
		{"too short", 0, []float32{1}, four, "want 16 bytes"},
		{"other type of the same size", 0, []int32{1, 2, 3, 4}, four, "want a []float32"},
		{"no slice", 0, 3, four, "want a []float32"},
		{"nil", 0, nil, four, "want a []float32"},
		{"invalid shape", 0, []float32{1}, shapes.Shape{}, "invalid shape"},
		{"negative dimension", 0, []float32{1}, shapes.Shape{DType: dtypes.Float32, Dimensions: []int{-4}}, "negative"},
		{"unsupported dtype", 0, []uint8{1}, shapes.Shape{DType: dtypes.F8E4M3, Dimensions: []int{1}}, "F8E4M3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := b.BufferFromFlatData(test.num, test.flat, test.shape)
			assert.ErrorContains(t, err, test.want)
		})
	}
	x := buffer(t, b, pair[0])
	assert.ErrorContains(t, x.ToFlatData(make([]float32, 3)), "want 16 bytes")
	assert.ErrorContains(t, x.ToFlatData(make([]uint32, 4)), "want a []float32")
	_, err := x.CopyToDevice(7)
	assert.ErrorContains(t, err, "device 7")
	_, err = x.Data()
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	_, _, err = b.NewSharedBuffer(0, four)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.False(t, b.HasSharedBuffers())
}

func TestCloseFreesEverythingAndRefusesUse(t *testing.T) {
	client := newClient(t) // its Close at the end fails if anything is left open in it
	b, err := backend.New(client, backend.Options{Name: "mine"})
	require.NoError(t, err)
	assert.Equal(t, "mine", b.Name())
	assert.Contains(t, b.Description(), "cpu")
	exe := compile(t, b, pair, addSub(t))
	late := b.Builder("late")
	x := buffer(t, b, pair[0])
	_, err = exe.Execute([]compute.Buffer{x, x}, nil, 0)
	require.NoError(t, err)

	require.NoError(t, b.Close())
	require.NoError(t, b.Close())
	b.Finalize()
	assert.True(t, b.IsFinalized())
	_, err = exe.Execute([]compute.Buffer{x, x}, nil, 0)
	assert.ErrorIs(t, err, backend.ErrFinalized)
	assert.ErrorIs(t, x.ToFlatData(make([]float32, 4)), backend.ErrFinalized)
	_, err = x.CopyToDevice(1)
	assert.ErrorIs(t, err, backend.ErrFinalized)
	_, err = b.BufferFromFlatData(0, pair[0].flat, pair[0].shape())
	assert.ErrorIs(t, err, backend.ErrFinalized)
	_, err = late.Main().Constant([]float32{1})
	assert.ErrorIs(t, err, lowering.ErrFinalized)
	assert.NoError(t, x.Finalize())
	exe.Finalize()
}

// TestZeroOptionsAreOneCPUDevice makes backends of nothing: no client, no options, no places to
// look in.
func TestZeroOptionsAreOneCPUDevice(t *testing.T) {
	path := plugintest.Path(t, "cpu")
	backend.Register("tpustrategy-zero", pjrt.FindOptions{})
	for name, open := range map[string]func() (compute.Backend, error){
		"no client": func() (compute.Backend, error) { return backend.New(nil, backend.Options{}) },
		"no config": func() (compute.Backend, error) {
			return backend.NewFromConfig(t.Context(), "", backend.Options{}, pjrt.FindOptions{})
		},
		"registered": func() (compute.Backend, error) { return compute.NewWithConfig("tpustrategy-zero:") },
	} {
		b, err := open()
		require.NoError(t, err, name)
		assert.Equal(t, 1, b.NumDevices(), name)
		assert.Equal(t, pair[0].flat, flat(t, buffer(t, b.(*backend.Backend), pair[0])), name)
		require.NoError(t, b.(*backend.Backend).Close(), "%s: its client is its own", name)
	}
	t.Setenv("TPUSTRATEGY_CPU_PLUGIN", path+".gone")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	_, err := backend.New(nil, backend.Options{})
	var missing *pjrt.FindError
	require.ErrorAs(t, err, &missing)
	assert.ErrorContains(t, err, path+".gone")
}

func TestForgottenBuffersAreCollected(t *testing.T) {
	b := newBackend(t)
	client := b.Client()
	func() {
		for range 10 {
			buffer(t, b, pair[0])
		}
	}()
	keep := buffer(t, b, pair[0])
	assert.Eventually(t, func() bool {
		runtime.GC()
		return b.Live() == 1
	}, 10*time.Second, 10*time.Millisecond, "%d live", b.Live())
	runtime.KeepAlive(keep)
	assert.NotNil(t, client)
}

func TestConcurrentExecutions(t *testing.T) {
	b := newBackend(t)
	exe := compile(t, b, pair, addSub(t))
	x, y := buffer(t, b, pair[0]), buffer(t, b, pair[1])
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				out, err := exe.Execute([]compute.Buffer{x, y}, nil, 0)
				if !assert.NoError(t, err) {
					return
				}
				got := make([]float32, 4)
				assert.NoError(t, out[1].ToFlatData(got))
				assert.Equal(t, []float32{-9, -18, -27, -36}, got)
				assert.NoError(t, out[0].Finalize())
			}
		})
	}
	wg.Wait()
}

func BenchmarkExecute(b *testing.B) {
	back := newBackend(b)
	exe := compile(b, back, pair, addSub(b))
	in := []compute.Buffer{buffer(b, back, pair[0]), buffer(b, back, pair[1])}
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
