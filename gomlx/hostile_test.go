package gomlx_test

import (
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/gomlx"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// eight is a batch that four replicas divide, and weights one that names a variable.
var (
	eight   = tensor{flat: []float32{1, 2, 3, 4, 5, 6, 7, 8}, dims: []int{8}}
	weights = tensor{name: "/w", flat: []float32{8, 7, 6, 5, 4, 3, 2, 1}, dims: []int{8}}
)

// addSub is two results of two parameters.
func addSub(t testing.TB) body {
	return func(f compute.Function, x []compute.Value) []compute.Value {
		do := must(t)
		return []compute.Value{do(f.Add(x[0], x[1])), do(f.Sub(x[0], x[1]))}
	}
}

// TestHostileInputs passes invalid inputs to an executable. Each is an error that names the input,
// and the inputs and the executable stay valid.
func TestHostileInputs(t *testing.T) {
	b := newBackend(t, grid)
	stranger := newBackend(t, shape{"2x1", 2, 1})
	host, err := gobackend.New("")
	require.NoError(t, err)
	foreign, err := host.BufferFromFlatData(0, eight.flat, eight.shape())
	require.NoError(t, err)
	exe := compiledOf(t, b, []tensor{eight, weights}, addSub(t))
	x, y, gone, donated := put(t, b, eight), put(t, b, weights), put(t, b, eight), put(t, b, eight)
	require.NoError(t, gone.Finalize())
	require.NoError(t, gone.Finalize(), "twice is fine")
	_, err = exe.Execute([]compute.Buffer{donated, y}, []bool{true, false}, 0)
	require.NoError(t, err)
	require.NoError(t, donated.Finalize(), "a donated buffer is finalized as well")
	short := put(t, b, tensor{flat: []float32{1}, dims: []int{1}})
	ints := put(t, b, tensor{flat: []int32{1, 2, 3, 4, 5, 6, 7, 8}, dims: []int{8}})
	square := put(t, b, tensor{flat: eight.flat, dims: []int{2, 4}})
	var none *gomlx.Buffer
	for _, test := range []struct {
		name   string
		in     []compute.Buffer
		donate []bool
		device compute.DeviceNum
		want   []string
	}{
		{"none", nil, nil, 0, []string{"0 inputs, want 2"}},
		{"too few", []compute.Buffer{x}, nil, 0, []string{"1 inputs, want 2"}},
		{"too many", []compute.Buffer{x, y, y}, nil, 0, []string{"3 inputs, want 2"}},
		{"too few flags", []compute.Buffer{x, y}, []bool{true}, 0, []string{"1 donate flags for 2 inputs"}},
		{"too many flags", []compute.Buffer{x, y}, []bool{true, false, false}, 0, []string{"3 donate flags for 2 inputs"}},
		{"nil", []compute.Buffer{x, nil}, nil, 0, []string{"input 1"}},
		{"a nil buffer", []compute.Buffer{none, y}, nil, 0, []string{"input 0"}},
		{"a zero buffer", []compute.Buffer{&gomlx.Buffer{}, y}, nil, 0, []string{"input 0"}},
		{"of a backend of another kind", []compute.Buffer{x, foreign}, nil, 0, []string{"input 1", "gobackend.Buffer"}},
		{"of another backend of this kind", []compute.Buffer{x, put(t, stranger, weights)}, nil, 0,
			[]string{"input 1", "another backend"}},
		{"of another size", []compute.Buffer{x, short}, nil, 0, []string{`input 1, parameter "/w"`, "(Float32)[1]",
			"(Float32)[8]"}},
		{"of another rank", []compute.Buffer{square, y}, nil, 0, []string{`input 0, parameter "arg0"`, "[2, 4]"}},
		{"of another dtype of the same size", []compute.Buffer{ints, y}, nil, 0, []string{"(Int32)[8]", "(Float32)[8]"}},
		{"finalized", []compute.Buffer{gone, y}, nil, 0, []string{"input 0", "finalized"}},
		{"donated before", []compute.Buffer{donated, y}, nil, 0, []string{"input 0", "donated"}},
		{"donated twice in one call", []compute.Buffer{x, x}, []bool{true, true}, 0, []string{"input 1", "twice"}},
		{"donated and used in one call", []compute.Buffer{x, x}, []bool{true, false}, 0, []string{"donated"}},
		{"used and donated in one call", []compute.Buffer{x, x}, []bool{false, true}, 0, []string{"donated"}},
		{"for a device that is not there", []compute.Buffer{x, y}, nil, 8, []string{"device 8"}},
		{"for a device below zero", []compute.Buffer{x, y}, nil, -1, []string{"device -1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			plugintest.Within(t, 20*time.Second, func() {
				_, err := exe.Execute(test.in, test.donate, test.device)
				assertFault(t, err, test.want...)
			})
		})
	}
	out, err := exe.Execute([]compute.Buffer{x, y}, nil, 0)
	require.NoError(t, err, "the program still runs, and its inputs are there")
	assert.Equal(t, []float32{9, 9, 9, 9, 9, 9, 9, 9}, flatOf(t, out[0]))
	assert.Equal(t, eight.flat, flatOf(t, x))
	out, err = exe.Execute([]compute.Buffer{x, x}, nil, 0)
	require.NoError(t, err, "one buffer for two parameters that lie differently")
	assert.Equal(t, make([]float32, 8), flatOf(t, out[1]))
}

func TestHostileTransfers(t *testing.T) {
	b := newBackend(t, grid)
	for _, test := range []struct {
		name  string
		num   compute.DeviceNum
		flat  any
		shape shapes.Shape
		want  string
	}{
		{"no such device", 9, eight.flat, eight.shape(), "device 9"},
		{"negative device", -1, eight.flat, eight.shape(), "device -1"},
		{"too short", 0, []float32{1}, eight.shape(), "32 bytes"},
		{"too long", 0, make([]float32, 9), eight.shape(), "32 bytes"},
		{"other type of the same size", 0, make([]int32, 8), eight.shape(), "[]float32"},
		{"no slice", 0, 3, eight.shape(), "[]float32"},
		{"nil", 0, nil, eight.shape(), "[]float32"},
		{"nothing for something", 0, []float32(nil), eight.shape(), "32 bytes"},
		{"invalid shape", 0, []float32{1}, shapes.Shape{}, "invalid shape"},
		{"negative dimension", 0, []float32{1}, shapes.Shape{DType: dtypes.Float32, Dimensions: []int{-4}}, "negative"},
		{"more than there are bytes", 0, []float32{1}, shapes.Shape{DType: dtypes.Float32, Dimensions: []int{math.MaxInt, 4}},
			""},
		{"unsupported dtype", 0, []uint8{1}, shapes.Shape{DType: dtypes.F8E4M3, Dimensions: []int{1}}, "F8E4M3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := b.BufferFromFlatData(test.num, test.flat, test.shape)
			assertFault(t, err, test.want)
		})
	}
	x := put(t, b, eight)
	exe := compiledOf(t, b, []tensor{eight}, func(f compute.Function, x []compute.Value) []compute.Value { return x })
	out, err := exe.Execute([]compute.Buffer{x}, nil, 0)
	require.NoError(t, err)
	for name, buf := range map[string]compute.Buffer{"on the host or split": x, "a result": out[0]} {
		assertFault(t, buf.ToFlatData(make([]float32, 7)), "32 bytes")
		assertFault(t, buf.ToFlatData(make([]uint32, 8)), "[]float32")
		assertFault(t, buf.ToFlatData(nil), "[]float32")
		_, err := buf.CopyToDevice(8)
		assertFault(t, err, "device 8")
		_, err = buf.CopyToDevice(0)
		assertFault(t, err, "device 0")
		_, err = buf.Data()
		assertFault(t, err, "ToFlatData")
		assert.Equal(t, eight.flat, flatOf(t, buf), name)
	}
	_, _, err = b.NewSharedBuffer(0, eight.shape())
	assertFault(t, err, "BufferFromFlatData")
}

// TestTheHostsMemoryIsTheCallersAgain modifies the slice after the transfer.
func TestTheHostsMemoryIsTheCallersAgain(t *testing.T) {
	b := newBackend(t, grid)
	values := []float32{1, 2, 3, 4, 5, 6, 7, 8}
	buf := put(t, b, tensor{flat: values, dims: []int{8}})
	clear(values)
	assert.Equal(t, eight.flat, flatOf(t, buf))
	read := flatOf(t, buf).([]float32)
	clear(read)
	assert.Equal(t, eight.flat, flatOf(t, buf))
}

// TestOddTensors sends tensors of odd sizes and dtypes through an identity and through a sum of
// halves, on meshes that do not divide them.
func TestOddTensors(t *testing.T) {
	n := func(k int) []float32 {
		out := make([]float32, k)
		for i := range out {
			out[i] = float32(i) + 0.5
		}
		return out
	}
	tensors := map[string]tensor{
		"batch of 7":      {flat: n(7 * 3), dims: []int{7, 3}},
		"batch of 1":      {flat: n(3), dims: []int{1, 3}},
		"batch of 9":      {flat: n(9), dims: []int{9}},
		"no rows":         {flat: []float32{}, dims: []int{0, 3}},
		"no columns":      {flat: []float32{}, dims: []int{8, 0}},
		"a scalar":        {flat: []float32{2.5}},
		"rank 8":          {flat: n(8 * 2 * 2 * 3), dims: []int{8, 1, 2, 1, 2, 1, 3, 1}},
		"a variable of 7": {name: "/v", flat: n(7), dims: []int{7}},
		"bool":            {flat: []bool{true, false, true, true, false, false, true, false}, dims: []int{8}},
		"bool of 3":       {flat: []bool{true, false, true}, dims: []int{3}},
		"int4":            {flat: []uint8{0x1F, 0x82, 0x7E, 0x30}, dims: []int{8}, dtype: dtypes.Int4},
		"uint2 of 16":     {flat: []uint8{0x1B, 0x8F, 0x70, 0x01}, dims: []int{16}, dtype: dtypes.Uint2},
		"complex64":       {flat: []complex64{1 + 2i, 3, -1i, 4, 5, 6, 7, 8i}, dims: []int{8}},
		"complex128":      {flat: []complex128{1 + 2i, 3, -1i}, dims: []int{3}},
		"bfloat16": {flat: []bfloat16.BFloat16{bfloat16.FromFloat32(1.5), bfloat16.FromFloat32(-2), 0, 0},
			dims: []int{4}},
		"uint64":       {flat: []uint64{math.MaxUint64, 1 << 63, 0, 7}, dims: []int{4, 1}},
		"int8":         {flat: []int8{-128, 127, 0, 1, 2, 3, 4, 5}, dims: []int{8}},
		"not a number": {flat: []float64{1, math.Inf(-1), math.Copysign(0, -1), 3}, dims: []int{4}},
	}
	for _, over := range []shape{grid, {"8x1", 8, 1}} {
		b := newBackend(t, over)
		for name, x := range tensors {
			t.Run(over.name+" "+name, func(t *testing.T) {
				got := runOf(t, b, []tensor{x}, func(f compute.Function, v []compute.Value) []compute.Value {
					flat := must(t)(f.Reshape(v[0], x.shape().Size()))
					return []compute.Value{v[0], v[0], must(t)(f.Reverse(flat, 0)), must(t)(f.Reverse(must(t)(f.Reverse(flat, 0)), 0))}
				})
				assert.Equal(t, x.flat, got[0])
				assert.Equal(t, x.flat, got[1], "the same parameter as two results")
				assert.Equal(t, x.flat, got[3], "reversed twice")
				if x.shape().Size() > 1 && x.shape().DType != dtypes.Bool {
					assert.NotEqual(t, x.flat, got[2], "reversed")
				}
			})
		}
	}
	b := newBackend(t, grid)
	nan := float32(math.NaN())
	got := runOf(t, b, []tensor{{flat: []float32{1, nan, 3, 4, 5, 6, 7, 8}, dims: []int{8}}}, func(f compute.Function,
		x []compute.Value) []compute.Value {
		return []compute.Value{must(t)(f.ReduceSum(x[0])), must(t)(f.IsNaN(x[0])), must(t)(f.ReduceMax(x[0]))}
	})
	assert.True(t, math.IsNaN(float64(got[0].([]float32)[0])))
	assert.Equal(t, []bool{false, true, false, false, false, false, false, false}, got[1])
	assert.True(t, math.IsNaN(float64(got[2].([]float32)[0])))
}

// TestUseAfterTheEnd uses every object after the backend's Finalize.
func TestUseAfterTheEnd(t *testing.T) {
	b, err := gomlx.New(plugintest.System(t, 4), gomlx.Options{Name: "mine", LogicalDevices: 2})
	require.NoError(t, err)
	exe := compiledOf(t, b, []tensor{eight, weights}, addSub(t))
	x := put(t, b, eight)
	out, err := exe.Execute([]compute.Buffer{x, x}, nil, 0)
	require.NoError(t, err)
	late := b.Builder("late")
	require.NoError(t, b.Close())
	require.NoError(t, b.Close(), "twice")
	b.Finalize()
	assert.True(t, b.IsFinalized())
	_, err = exe.Execute([]compute.Buffer{x, x}, nil, 0)
	assert.ErrorIs(t, err, gomlx.ErrFinalized)
	for _, buf := range []compute.Buffer{x, out[0]} {
		assert.ErrorIs(t, buf.ToFlatData(make([]float32, 8)), gomlx.ErrFinalized)
		_, err = buf.CopyToDevice(1)
		assert.ErrorIs(t, err, gomlx.ErrFinalized)
		require.NoError(t, buf.Finalize())
		_, err = buf.Shape()
		require.NoError(t, err)
	}
	_, err = b.BufferFromFlatData(0, eight.flat, eight.shape())
	assert.ErrorIs(t, err, gomlx.ErrFinalized)
	_, err = late.Main().Constant([]float32{1})
	assertFault(t, err, "finalized")
	_, err = late.Compile()
	assertFault(t, err, "finalized")
	exe.Finalize()
	assert.Zero(t, b.NumLive())
}

// TestExecutablesEnd finalizes an executable between its executions.
func TestExecutablesEnd(t *testing.T) {
	b := newBackend(t, grid)
	for _, ran := range []bool{false, true} {
		exe := compiledOf(t, b, []tensor{eight, weights}, addSub(t))
		x := put(t, b, eight)
		var out []compute.Buffer
		if ran {
			var err error
			out, err = exe.Execute([]compute.Buffer{x, x}, nil, 0)
			require.NoError(t, err)
		}
		exe.Finalize()
		exe.Finalize()
		_, err := exe.Execute([]compute.Buffer{x, x}, nil, 0)
		assert.ErrorIs(t, err, gomlx.ErrFinalized)
		names, _ := exe.Inputs()
		assert.Equal(t, []string{"arg0", "/w"}, names)
		if ran {
			assert.Equal(t, make([]float32, 8), flatOf(t, out[1]), "results outlive the program")
		}
		assert.Equal(t, eight.flat, flatOf(t, x))
	}
}

// TestSystemsThatEndFirst closes the devices under a backend.
func TestSystemsThatEndFirst(t *testing.T) {
	sys := plugintest.System(t, 2)
	b, err := gomlx.New(sys, gomlx.Options{})
	require.NoError(t, err)
	x := put(t, b, eight)
	exe := compiledOf(t, b, []tensor{eight, weights}, addSub(t))
	out, err := exe.Execute([]compute.Buffer{x, x}, nil, 0)
	require.NoError(t, err)
	if err := sys.Close(); err != nil {
		assert.ErrorContains(t, err, "open", "what is open is said")
		assert.Equal(t, make([]float32, 8), flatOf(t, out[1]))
	}
	plugintest.Within(t, 20*time.Second, func() { _, _ = exe.Execute([]compute.Buffer{x, x}, nil, 0) })
	_ = b.Close()
	_, err = gomlx.New(sys, gomlx.Options{})
	if err != nil {
		assert.ErrorIs(t, err, pjrt.ErrClosed)
	}
	_, err = gomlx.New(nil, gomlx.Options{})
	assertFault(t, err)
	runtime.KeepAlive(x)
	assert.NotContains(t, strings.ToLower(err.Error()), "nil pointer")
}
