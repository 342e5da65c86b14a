package pjrt_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// fixture is a client with two devices, program two() on device 0, and valid arguments for the
// program.
type fixture struct {
	c       *pjrt.Client
	x       *pjrt.LoadedExecutable
	d0, d1  *pjrt.Device
	a, y    *pjrt.Buffer
	args    [][]*pjrt.Buffer
	results [][]*pjrt.Buffer
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := plugintest.CPU(t, 2)
	x := compile(t, c, two(), pjrt.CompileOptions{DeviceAssignment: [][]int{{0}}})
	b := &fixture{c: c, x: x, d0: c.Devices()[0], d1: c.Devices()[1]}
	b.a = put(t, c, []float32{1, 2, 3, 4, 5, 6}, pjrt.F32, []int{2, 3}, b.d0)
	b.y = put(t, c, []int32{7, 8, 9, 10}, pjrt.S32, []int{4}, b.d0)
	b.args, b.results = [][]*pjrt.Buffer{{b.a, b.y}}, rows(1, 2)
	t.Cleanup(func() { closeAll(b.results) })
	return b
}

func TestExecuteCreatesBuffersForNilResults(t *testing.T) {
	leaktest.Check(t)
	b := newFixture(t)
	require.NoError(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{}))
	sum, same := b.results[0][0], b.results[0][1]
	assert.Equal(t, []float32{2, 4, 6, 8, 10, 12}, get[float32](t, sum, 6))
	assert.Equal(t, []int32{7, 8, 9, 10}, get[int32](t, same, 4))
	assert.Equal(t, []int{2, 3}, sum.Dims())
	assert.Equal(t, pjrt.F32, sum.DType())
	assert.Equal(t, 24, sum.Bytes())
	assert.Same(t, b.d0, sum.Device())
	assert.Equal(t, pjrt.Live, b.a.State(), "arguments stay live")
	assert.Equal(t, []float32{1, 2, 3, 4, 5, 6}, get[float32](t, b.a, 6))
	assert.Equal(t, "F32[2,3] on device 0", sum.String())
}

func TestDonatedBufferIsUnusableUntilRefilled(t *testing.T) {
	leaktest.Check(t)
	b := newFixture(t)
	require.NoError(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{Donate: []bool{true, false}}))
	assert.Equal(t, pjrt.Donated, b.a.State())
	assert.Equal(t, pjrt.Live, b.y.State())
	_, err := b.a.IsReady()
	require.ErrorIs(t, err, pjrt.ErrDonated)
	require.ErrorIs(t, b.a.Ready(background), pjrt.ErrDonated)
	require.ErrorIs(t, b.a.ToHost(background, make([]byte, 24)), pjrt.ErrDonated)
	_, err = b.a.CopyToDevice(background, b.d1)
	require.ErrorIs(t, err, pjrt.ErrDonated)
	_, err = b.a.OnDeviceSize()
	require.ErrorIs(t, err, pjrt.ErrDonated)
	assert.Equal(t, []int{2, 3}, b.a.Dims(), "the shape of the last contents")
	assert.Equal(t, "F32[2,3] on device 0 (donated)", b.a.String())
	require.NoError(t, b.c.RefillFromHost(background, b.a, pjrt.Bytes([]float32{9, 9, 9, 9, 9, 9}), pjrt.F32,
		[]int{2, 3}, b.d0))
	assert.Equal(t, pjrt.Live, b.a.State())
	assert.Equal(t, []float32{9, 9, 9, 9, 9, 9}, get[float32](t, b.a, 6))
	require.NoError(t, b.a.Close())
	require.NoError(t, b.c.RefillFromHost(background, b.a, pjrt.Bytes([]int8{1}), pjrt.S8, nil, b.d1),
		"another shape, type and device")
	assert.Equal(t, "S8[] on device 1", b.a.String())
	assert.Equal(t, []int8{1}, get[int8](t, b.a, 1))
}

func TestExecuteRefillsClosedAndDonatedBuffers(t *testing.T) {
	leaktest.Check(t)
	b := newFixture(t)
	other := put(t, b.c, []float32{0}, pjrt.F32, []int{1}, b.d1)
	require.NoError(t, other.Close())
	b.results[0][0], b.results[0][1] = b.a, other
	require.NoError(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{Donate: []bool{true, false}}))
	assert.Equal(t, []float32{2, 4, 6, 8, 10, 12}, get[float32](t, b.a, 6))
	assert.Equal(t, []int32{7, 8, 9, 10}, get[int32](t, other, 4))
	assert.Same(t, b.d0, other.Device())
}

func TestRejectedLaunchKeepsArguments(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, function("%x: tensor<f32>", "tensor<20000000x20000000xf32>",
		"%o = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<20000000x20000000xf32>\n return %o : "+
			"tensor<20000000x20000000xf32>"), pjrt.CompileOptions{})
	b := put(t, c, []float32{3}, pjrt.F32, nil, c.Devices()[0])
	closed := put(t, c, []float32{3}, pjrt.F32, nil, c.Devices()[0])
	closed.Close()
	for range 3 {
		err := x.Execute(background, [][]*pjrt.Buffer{{b}}, [][]*pjrt.Buffer{{closed}},
			pjrt.ExecuteOptions{Donate: []bool{true}})
		require.ErrorIs(t, err, pjrt.ResourceExhausted)
		assert.Equal(t, pjrt.Closed, closed.State())
	}
	assert.Equal(t, []float32{3}, get[float32](t, b, 1))
}

func TestExecuteAfterCancelAndClose(t *testing.T) {
	leaktest.Check(t)
	b := newFixture(t)
	ctx, cancel := context.WithCancelCause(background)
	why := errors.New("enough")
	cancel(why)
	require.ErrorIs(t, b.x.Execute(ctx, b.args, b.results, pjrt.ExecuteOptions{}), why)
	require.NoError(t, b.x.Close())
	require.NoError(t, b.x.Close())
	require.ErrorIs(t, b.x.Execute(background, b.args, b.results, pjrt.ExecuteOptions{}), pjrt.ErrClosed)
	_, err := b.x.MeasureLoop(background, b.args, 1)
	require.ErrorIs(t, err, pjrt.ErrClosed)
}

func TestConcurrentExecutesShareArguments(t *testing.T) {
	leaktest.Check(t)
	const n, goroutines, rounds = 4, 8, 50
	c := plugintest.CPU(t, n)
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

func TestConcurrentDonationCloseAndUse(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, addOne(1), pjrt.CompileOptions{})
	d := c.Devices()[0]
	for range 200 {
		b, err := c.BufferFromHost(background, make([]byte, 32), pjrt.F32, []int{1, 8}, d)
		require.NoError(t, err)
		state := [][]*pjrt.Buffer{{b}}
		allowed := func(err error) {
			if err != nil && !errors.Is(err, pjrt.ErrClosed) && !errors.Is(err, pjrt.ErrDonated) &&
				!errors.Is(err, pjrt.ErrBusy) {
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
		// The buffer is live if the refill came after the Close.
		require.NoError(t, b.Close())
		assert.Equal(t, pjrt.Closed, b.State())
	}
}

func TestStepLoopOnEightDevices(t *testing.T) {
	leaktest.Check(t)
	const n = 8
	c := plugintest.CPU(t, n)
	x := compile(t, c, addOne(n), spmd(n))
	params, known := x.Parameters()
	require.True(t, known)
	assert.Equal(t, []pjrt.TensorType{{DType: pjrt.F32, Dims: []int{1, 8}}}, params)
	state := rows(n, 1)
	for d, dev := range x.AddressableDevices() {
		state[d][0] = put(t, c, make([]float32, 8), pjrt.F32, []int{1, 8}, dev)
	}
	before := state[3][0]
	for range 10 {
		require.NoError(t, x.Execute(background, state, state, pjrt.ExecuteOptions{Donate: []bool{true}}))
	}
	require.Same(t, before, state[3][0], "Execute reuses the Buffer")
	for _, row := range state {
		assert.Equal(t, []float32{10, 10, 10, 10, 10, 10, 10, 10}, get[float32](t, row[0], 8))
	}
}
