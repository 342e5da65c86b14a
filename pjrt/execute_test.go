package pjrt_test

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// bench is a client of two devices, program two() on device 0, and good arguments for it.
type bench struct {
	c       *pjrt.Client
	x       *pjrt.LoadedExecutable
	d0, d1  *pjrt.Device
	a, y    *pjrt.Buffer
	args    [][]*pjrt.Buffer
	results [][]*pjrt.Buffer
}

func newBench(t *testing.T) *bench {
	t.Helper()
	c := cpu(t, 2)
	x := compile(t, c, two(), pjrt.CompileOptions{DeviceAssignment: [][]int{{0}}})
	b := &bench{c: c, x: x, d0: c.Devices()[0], d1: c.Devices()[1]}
	b.a = put(t, c, []float32{1, 2, 3, 4, 5, 6}, pjrt.F32, []int{2, 3}, b.d0)
	b.y = put(t, c, []int32{7, 8, 9, 10}, pjrt.S32, []int{4}, b.d0)
	b.args, b.results = [][]*pjrt.Buffer{{b.a, b.y}}, rows(1, 2)
	t.Cleanup(func() { closeAll(b.results) })
	return b
}

func TestExecuteGivesNewBuffersForNilResults(t *testing.T) {
	leaktest.Check(t)
	b := newBench(t)
	require.NoError(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{}))
	sum, same := b.results[0][0], b.results[0][1]
	assert.Equal(t, []float32{2, 4, 6, 8, 10, 12}, get[float32](t, sum, 6))
	assert.Equal(t, []int32{7, 8, 9, 10}, get[int32](t, same, 4))
	assert.Equal(t, []int{2, 3}, sum.Dims())
	assert.Equal(t, pjrt.F32, sum.DType())
	assert.Equal(t, 24, sum.Bytes())
	assert.Same(t, b.d0, sum.Device())
	assert.Equal(t, pjrt.Live, b.a.State(), "arguments stay")
	assert.Equal(t, []float32{1, 2, 3, 4, 5, 6}, get[float32](t, b.a, 6))
	assert.Equal(t, "F32[2,3] on device 0", sum.String())
}

func TestDonatedBuffersAreGoneUntilFilledAgain(t *testing.T) {
	leaktest.Check(t)
	b := newBench(t)
	require.NoError(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{Donate: []bool{true, false}}))
	assert.True(t, b.a.IsDonated())
	assert.Equal(t, pjrt.Live, b.y.State())
	_, err := b.a.IsReady()
	require.ErrorIs(t, err, pjrt.ErrDonated)
	require.ErrorIs(t, b.a.Ready(background), pjrt.ErrDonated)
	require.ErrorIs(t, b.a.ToHost(background, make([]byte, 24)), pjrt.ErrDonated)
	_, err = b.a.CopyToDevice(background, b.d1)
	require.ErrorIs(t, err, pjrt.ErrDonated)
	_, err = b.a.OnDeviceSize()
	require.ErrorIs(t, err, pjrt.ErrDonated)
	assert.Equal(t, []int{2, 3}, b.a.Dims(), "it still tells what it was")
	assert.Equal(t, "F32[2,3] on device 0 (donated)", b.a.String())
	require.NoError(t, b.c.RefillFromHost(background, b.a, pjrt.Bytes([]float32{9, 9, 9, 9, 9, 9}), pjrt.F32, []int{2, 3}, b.d0))
	assert.Equal(t, pjrt.Live, b.a.State())
	assert.Equal(t, []float32{9, 9, 9, 9, 9, 9}, get[float32](t, b.a, 6))
	require.NoError(t, b.a.Close())
	require.NoError(t, b.c.RefillFromHost(background, b.a, pjrt.Bytes([]int8{1}), pjrt.S8, nil, b.d1), "another shape, type and device")
	assert.Equal(t, "S8[] on device 1", b.a.String())
	assert.Equal(t, []int8{1}, get[int8](t, b.a, 1))
}

func TestClosedAndDonatedBuffersTakeResults(t *testing.T) {
	leaktest.Check(t)
	b := newBench(t)
	other := put(t, b.c, []float32{0}, pjrt.F32, []int{1}, b.d1)
	require.NoError(t, other.Close())
	b.results[0][0], b.results[0][1] = b.a, other
	require.NoError(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{Donate: []bool{true, false}}))
	assert.Equal(t, []float32{2, 4, 6, 8, 10, 12}, get[float32](t, b.a, 6))
	assert.Equal(t, []int32{7, 8, 9, 10}, get[int32](t, other, 4))
	assert.Same(t, b.d0, other.Device())
}

func TestExecuteRefusesWrongBuffers(t *testing.T) {
	type args = [][]*pjrt.Buffer
	donate := func(which ...bool) pjrt.ExecuteOptions { return pjrt.ExecuteOptions{Donate: which} }
	for name, c := range map[string]struct {
		change func(t *testing.T, b *bench) pjrt.ExecuteOptions
		device int
		index  int
		result bool
		is     error
	}{
		"no devices": {func(t *testing.T, b *bench) pjrt.ExecuteOptions { b.args = nil; return donate() }, -1, -1, false, nil},
		"a device too many": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.args = append(b.args, b.args[0])
			return pjrt.ExecuteOptions{}
		}, -1, -1, false, nil},
		"an argument missing": {func(t *testing.T, b *bench) pjrt.ExecuteOptions { b.args = args{{b.a}}; return pjrt.ExecuteOptions{} }, 0, -1, false, nil},
		"an argument too many": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.args = args{{b.a, b.y, b.y}}
			return pjrt.ExecuteOptions{}
		}, 0, -1, false, nil},
		"a nil argument":    {func(t *testing.T, b *bench) pjrt.ExecuteOptions { b.args[0][1] = nil; return pjrt.ExecuteOptions{} }, 0, 1, false, nil},
		"a closed argument": {func(t *testing.T, b *bench) pjrt.ExecuteOptions { b.y.Close(); return pjrt.ExecuteOptions{} }, 0, 1, false, pjrt.ErrClosed},
		"a donated argument": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			r := rows(1, 2)
			require.NoError(t, b.x.Execute(background, b.args, r, donate(true, false)))
			t.Cleanup(func() { closeAll(r) })
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, pjrt.ErrDonated},
		"another client's argument": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			c := cpu(t, 1)
			b.args[0][0] = put(t, c, make([]float32, 6), pjrt.F32, []int{2, 3}, c.Devices()[0])
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"another device's argument": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.args[0][0] = put(t, b.c, make([]float32, 6), pjrt.F32, []int{2, 3}, b.d1)
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"another type of the same size": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.args[0][1] = put(t, b.c, make([]uint32, 4), pjrt.U32, []int{4}, b.d0)
			return pjrt.ExecuteOptions{}
		}, 0, 1, false, nil},
		"another type of another size": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.args[0][1] = put(t, b.c, make([]int64, 4), pjrt.S64, []int{4}, b.d0)
			return pjrt.ExecuteOptions{}
		}, 0, 1, false, nil},
		"another shape of the same size": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.args[0][0] = put(t, b.c, make([]float32, 6), pjrt.F32, []int{3, 2}, b.d0)
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"another rank": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.args[0][0] = put(t, b.c, make([]float32, 6), pjrt.F32, []int{2, 3, 1}, b.d0)
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"an empty tensor": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.args[0][0] = put(t, b.c, []float32{}, pjrt.F32, []int{0, 3}, b.d0)
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"arguments swapped": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.args = args{{b.y, b.a}}
			return pjrt.ExecuteOptions{}
		}, 0, 0, false, nil},
		"a launch id of 33 bits": {func(t *testing.T, b *bench) pjrt.ExecuteOptions { return pjrt.ExecuteOptions{LaunchID: 1 << 32} }, -1, -1, false, nil},
		"Donate too short":       {func(t *testing.T, b *bench) pjrt.ExecuteOptions { return donate(true) }, -1, -1, false, nil},
		"Donate too long":        {func(t *testing.T, b *bench) pjrt.ExecuteOptions { return donate(true, true, true) }, -1, -1, false, nil},
		"no results":             {func(t *testing.T, b *bench) pjrt.ExecuteOptions { b.results = nil; return pjrt.ExecuteOptions{} }, -1, -1, true, nil},
		"a result missing":       {func(t *testing.T, b *bench) pjrt.ExecuteOptions { b.results = rows(1, 1); return pjrt.ExecuteOptions{} }, 0, -1, true, nil},
		"a live result": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.results = args{{b.a, nil}}
			return pjrt.ExecuteOptions{}
		}, 0, 0, true, pjrt.ErrBusy},
		"a live result that is no argument": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.results = args{{nil, put(t, b.c, make([]int32, 4), pjrt.S32, []int{4}, b.d0)}}
			return donate(true, false)
		}, 0, 1, true, pjrt.ErrBusy},
		"a donated buffer as two results": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			b.results = args{{b.a, b.a}}
			return donate(true, false)
		}, 0, 1, true, pjrt.ErrBusy},
		"a closed buffer as two results": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			closed := put(t, b.c, []float32{1}, pjrt.F32, nil, b.d0)
			closed.Close()
			b.results = args{{closed, closed}}
			return pjrt.ExecuteOptions{}
		}, 0, 1, true, pjrt.ErrBusy},
		"another client's result": {func(t *testing.T, b *bench) pjrt.ExecuteOptions {
			c := cpu(t, 1)
			foreign := put(t, c, []float32{1}, pjrt.F32, nil, c.Devices()[0])
			foreign.Close()
			b.results = args{{foreign, nil}}
			return pjrt.ExecuteOptions{}
		}, 0, 0, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			b := newBench(t)
			good := append([]*pjrt.Buffer{}, b.args[0]...)
			o := c.change(t, b)
			err := b.x.Execute(background, b.args, b.results, o)
			var ae *pjrt.ArgumentError
			require.ErrorAs(t, err, &ae)
			assert.Equal(t, [3]any{c.device, c.index, c.result}, [3]any{ae.Device, ae.Index, ae.Result}, "%v", err)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			// Nothing was executed, donated or left held: the good call still works.
			if name == "a closed argument" || name == "a donated argument" {
				return
			}
			r := rows(1, 2)
			defer func() { closeAll(r) }()
			require.NoError(t, b.x.Execute(background, [][]*pjrt.Buffer{good}, r, donate(true, true)))
		})
	}
}

func TestOneBufferInTwoArguments(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 1)
	x := compile(t, c, function("%x: tensor<2xf32> {jax.buffer_donor = true}, %y: tensor<2xf32>", "tensor<2xf32>",
		"%o = stablehlo.add %x, %y : tensor<2xf32>\n return %o : tensor<2xf32>"), pjrt.CompileOptions{})
	b := put(t, c, []float32{1, 2}, pjrt.F32, []int{2}, c.Devices()[0])
	args, r := [][]*pjrt.Buffer{{b, b}}, rows(1, 1)
	defer func() { closeAll(r) }()
	for name, donate := range map[string][]bool{"donated and used": {true, false}, "used and donated": {false, true}, "donated twice": {true, true}} {
		err := x.Execute(background, args, r, pjrt.ExecuteOptions{Donate: donate})
		require.ErrorIs(t, err, pjrt.ErrBusy, name)
		assert.Contains(t, err.Error(), "also")
		assert.Equal(t, pjrt.Live, b.State())
	}
	require.NoError(t, x.Execute(background, args, r, pjrt.ExecuteOptions{}))
	assert.Equal(t, []float32{2, 4}, get[float32](t, r[0][0], 2))
}

func TestALaunchThatThePluginRefusesLeavesItsArguments(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 1)
	x := compile(t, c, function("%x: tensor<f32>", "tensor<20000000x20000000xf32>",
		"%o = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<20000000x20000000xf32>\n return %o : tensor<20000000x20000000xf32>"), pjrt.CompileOptions{})
	b := put(t, c, []float32{3}, pjrt.F32, nil, c.Devices()[0])
	closed := put(t, c, []float32{3}, pjrt.F32, nil, c.Devices()[0])
	closed.Close()
	for range 3 {
		err := x.Execute(background, [][]*pjrt.Buffer{{b}}, [][]*pjrt.Buffer{{closed}}, pjrt.ExecuteOptions{Donate: []bool{true}})
		require.ErrorIs(t, err, pjrt.ResourceExhausted)
		assert.Equal(t, pjrt.Closed, closed.State())
	}
	assert.Equal(t, []float32{3}, get[float32](t, b, 1))
}

func TestParametersCanBeDeclaredButNotContradicted(t *testing.T) {
	b := newBench(t)
	types := []pjrt.TensorType{{DType: pjrt.F32, Dims: []int{2, 3}}, {DType: pjrt.S32, Dims: []int{4}}}
	require.NoError(t, b.x.SetParameters(types))
	var ae *pjrt.ArgumentError
	types[0].Dims = []int{3, 2}
	require.ErrorAs(t, b.x.SetParameters(types), &ae)
	require.ErrorAs(t, b.x.SetParameters(types[:1]), &ae)
	types[0].Dims = []int{-3, 2}
	require.ErrorAs(t, b.x.SetParameters(types), &ae)
	assert.Equal(t, []pjrt.TensorType{{DType: pjrt.F32, Dims: []int{2, 3}}, {DType: pjrt.S32, Dims: []int{4}}}, b.x.Outputs())
	assert.Equal(t, 2, b.x.NumOutputs())
}

func TestWritingToDimsDefeatsNoCheck(t *testing.T) {
	b := newBench(t)
	wrong := put(t, b.c, make([]float32, 6), pjrt.F32, []int{3, 2}, b.d0)
	copy(wrong.Dims(), []int{2, 3})
	b.args[0][0] = wrong
	var ae *pjrt.ArgumentError
	require.ErrorAs(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{}), &ae)
}

func TestAResultOfTooManyDimensionsIsRefused(t *testing.T) {
	leaktest.Check(t)
	deep := "tensor<4x" + strings.Repeat("1x", 64) + "f32>"
	var refused *pjrt.CompileError
	_, err := cpu(t, 1).Compile(background, function("%x: tensor<4xf32>", deep,
		"%o = stablehlo.reshape %x : (tensor<4xf32>) -> "+deep+"\n return %o : "+deep), pjrt.CompileOptions{})
	require.ErrorAs(t, err, &refused)
	assert.ErrorContains(t, err, "rank 65")
}

func TestExecuteHonoursContextAndClose(t *testing.T) {
	leaktest.Check(t)
	b := newBench(t)
	ctx, cancel := context.WithCancelCause(background)
	why := errors.New("enough")
	cancel(why)
	require.ErrorIs(t, b.x.Execute(ctx, b.args, b.results, pjrt.ExecuteOptions{}), why)
	require.NoError(t, b.x.Close())
	require.NoError(t, b.x.Close())
	require.ErrorIs(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{}), pjrt.ErrClosed)
	_, err := b.x.Repeat(background, b.args, 1)
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

func TestRepeatRefusesWhatCannotLoop(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 1)
	x := compile(t, c, function("%x: tensor<2xf32>", "tensor<4xf32>", "%o = stablehlo.concatenate %x, %x, dim = 0 : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"), pjrt.CompileOptions{})
	b := put(t, c, []float32{1, 2}, pjrt.F32, []int{2}, c.Devices()[0])
	var ae *pjrt.ArgumentError
	_, err := x.Repeat(background, [][]*pjrt.Buffer{{b}}, 3)
	require.ErrorAs(t, err, &ae)
	_, err = x.Repeat(background, [][]*pjrt.Buffer{{}}, 3)
	require.ErrorAs(t, err, &ae)
	for _, n := range []int{0, -1, math.MinInt} {
		_, err = x.Repeat(background, [][]*pjrt.Buffer{{b}}, n)
		require.ErrorContains(t, err, "one is the least")
	}
	assert.Equal(t, []float32{1, 2}, get[float32](t, b, 2))
}

func TestConcurrentExecutesShareArguments(t *testing.T) {
	leaktest.Check(t)
	const n, goroutines, rounds = 4, 8, 50
	c := cpu(t, n)
	x := compile(t, c, many(n, 3), spmd(n))
	args := rows(n, 3)
	for d, dev := range x.AddressableDevices() {
		for i := range args[d] {
			args[d][i] = put(t, c, []float32{float32(i), 1, 2, 3}, pjrt.F32, []int{1, 4}, dev)
		}
	}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			r := rows(n, 3)
			for range rounds {
				if !assert.NoError(t, x.Execute(background, args, r, pjrt.ExecuteOptions{})) {
					return
				}
				for d := range r {
					for i, b := range r[d] {
						out := make([]float32, 4)
						assert.NoError(t, b.ToHost(background, pjrt.Bytes(out)))
						assert.Equal(t, float32(i+1), out[0])
						b.Close()
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestDonationCloseAndUseRaceWithoutHarm(t *testing.T) {
	leaktest.Check(t)
	c := cpu(t, 1)
	x := compile(t, c, addOne(1), pjrt.CompileOptions{})
	d := c.Devices()[0]
	for range 200 {
		b, err := c.BufferFromHost(background, make([]byte, 32), pjrt.F32, []int{1, 8}, d)
		require.NoError(t, err)
		state := [][]*pjrt.Buffer{{b}}
		allowed := func(err error) {
			if err != nil && !errors.Is(err, pjrt.ErrClosed) && !errors.Is(err, pjrt.ErrDonated) && !errors.Is(err, pjrt.ErrBusy) {
				t.Errorf("unexpected: %v", err)
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() { allowed(x.Execute(background, state, state, pjrt.ExecuteOptions{Donate: []bool{true}})) })
		wg.Go(func() {
			r := rows(1, 1)
			allowed(x.Execute(background, state, r, pjrt.ExecuteOptions{}))
			closeAll(r)
		})
		wg.Go(func() { allowed(b.ToHost(background, make([]byte, 32))) })
		wg.Go(func() { _, err := b.IsReady(); allowed(err) })
		wg.Go(func() { allowed(b.Close()) })
		wg.Go(func() { _ = b.String(); _ = b.Dims(); _ = b.State() })
		wg.Wait()
		// A refill may have won against the Close; either way this ends it.
		require.NoError(t, b.Close())
		assert.Equal(t, pjrt.Closed, b.State())
	}
}

// Two programs with collectives, launched from many goroutines. Devices that saw them in different
// orders would wait for each other for ever, where the plugin does not order launches itself.
func TestConcurrentCollectivesDoNotWaitForEachOther(t *testing.T) {
	leaktest.Check(t)
	const n = 4
	c := cpu(t, n)
	sum := func(shape string) pjrt.Program {
		return function("%x: tensor<"+shape+"xf32>", "tensor<"+shape+"xf32>", `%o = "stablehlo.all_reduce"(%x) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
 %s = stablehlo.add %a, %b : tensor<f32>
 stablehlo.return %s : tensor<f32> }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids} : (tensor<`+shape+`xf32>) -> tensor<`+shape+`xf32>
 return %o : tensor<`+shape+`xf32>`)
	}
	options := pjrt.CompileOptions{Replicas: n, DeviceAssignment: [][]int{{0}, {1}, {2}, {3}}}
	var wg sync.WaitGroup
	for _, size := range []int{64, 4096} {
		x := compile(t, c, sum(strconv.Itoa(size)), options)
		args := rows(n, 1)
		for d, dev := range x.AddressableDevices() {
			data := make([]float32, size)
			data[0] = float32(d + 1)
			args[d][0] = put(t, c, data, pjrt.F32, []int{size}, dev)
		}
		for range 3 {
			wg.Go(func() {
				for range 30 {
					r := rows(n, 1)
					if !assert.NoError(t, x.Execute(background, args, r, pjrt.ExecuteOptions{})) {
						return
					}
					out := make([]float32, size)
					assert.NoError(t, r[n-1][0].ToHost(background, pjrt.Bytes(out)))
					assert.Equal(t, float32(1+2+3+4), out[0])
					closeAll(r)
				}
			})
		}
	}
	wg.Wait()
}

// Thousands of launches that donate nothing, with a collective, and nobody waits: the plugin's
// queues hold about a thousand parts, after which it would wait for itself.
func TestLaunchesThatNobodyWaitsForAreBounded(t *testing.T) {
	leaktest.Check(t)
	const n = 4
	c := cpu(t, n)
	x := compile(t, c, function("%x: tensor<8xf32>", "tensor<8xf32>", `%o = "stablehlo.all_reduce"(%x) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
 %s = stablehlo.add %a, %b : tensor<f32>
 stablehlo.return %s : tensor<f32> }) {replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids} : (tensor<8xf32>) -> tensor<8xf32>
 return %o : tensor<8xf32>`), pjrt.CompileOptions{Replicas: n, DeviceAssignment: [][]int{{0}, {1}, {2}, {3}}})
	args := rows(n, 1)
	for d, dev := range x.AddressableDevices() {
		args[d][0] = put(t, c, ones(8), pjrt.F32, []int{8}, dev)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			r := rows(n, 1)
			for range 4000 {
				closeAll(r)
				if !assert.NoError(t, x.Execute(background, args, r, pjrt.ExecuteOptions{})) {
					return
				}
			}
			assert.Equal(t, float32(2), get[float32](t, r[n-1][0], 8)[0])
			closeAll(r)
		})
	}
	wg.Wait()
}

func TestParametersThatNobodyTellsAreThoseOfTheFirstCall(t *testing.T) {
	leaktest.Check(t)
	b := newBench(t)
	pjrt.ForgetParameters(b.x)
	_, known := b.x.Parameters()
	require.False(t, known)
	var ae *pjrt.ArgumentError
	uneven := [][]*pjrt.Buffer{{b.a, nil}}
	require.ErrorAs(t, b.x.Execute(background, uneven, b.results, pjrt.ExecuteOptions{}), &ae)
	require.Error(t, b.x.Execute(background, [][]*pjrt.Buffer{{b.a}}, b.results, pjrt.ExecuteOptions{}), "the plugin counts them")
	require.NoError(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{}))
	types, known := b.x.Parameters()
	require.True(t, known)
	assert.Equal(t, []pjrt.TensorType{{DType: pjrt.F32, Dims: []int{2, 3}}, {DType: pjrt.S32, Dims: []int{4}}}, types)
	closeAll(b.results)
	require.ErrorAs(t, b.x.Execute(background, [][]*pjrt.Buffer{{b.y, b.a}}, b.results, pjrt.ExecuteOptions{}), &ae)

	pjrt.ForgetParameters(b.x)
	require.NoError(t, b.x.SetParameters(types))
	require.ErrorAs(t, b.x.Execute(background, [][]*pjrt.Buffer{{b.y, b.a}}, b.results, pjrt.ExecuteOptions{}), &ae)
}
