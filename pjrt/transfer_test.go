package pjrt_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestTransferRoundTrip(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	r := rand.New(rand.NewPCG(1, 2))
	for dtype := pjrt.Pred; dtype <= pjrt.F4E2M1FN; dtype++ {
		if dtype == pjrt.Token {
			continue
		}
		for _, dims := range [][]int{nil, {0}, {1}, {3}, {2, 3, 4}, {5, 0, 2}, {1, 1, 7, 1}, {129, 65}} {
			elements := 1
			for _, d := range dims {
				elements *= d
			}
			data := make([]byte, elements*dtype.HostBytes())
			for i := range data {
				data[i] = byte(r.Uint32())
				switch bits := dtype.Bits(); {
				case dtype == pjrt.Pred:
					data[i] &= 1
				case bits < 8 && (dtype == pjrt.S4 || dtype == pjrt.S2):
					data[i] = byte(int8(data[i]<<(8-bits)) >> (8 - bits)) // sign-extended
				case bits < 8:
					data[i] &= 1<<bits - 1
				}
			}
			sent := append([]byte{}, data...)
			b, err := c.BufferFromHost(background, sent, dtype, dims, c.Devices()[0])
			require.NoError(t, err, "%v%v", dtype, dims)
			clear(sent) // the data can be modified after the call
			assert.Equal(t, len(data), b.Bytes())
			got := make([]byte, len(data))
			require.NoError(t, b.ToHost(background, got), "%v%v", dtype, dims)
			assert.Equal(t, data, got, "%v%v", dtype, dims)
			if size, err := b.OnDeviceSize(); assert.NoError(t, err) {
				assert.Equal(t, (elements*dtype.Bits()+7)/8, size, "%v%v: bits of one element", dtype, dims)
			}
			require.NoError(t, b.Close())
		}
	}
}

func TestCompileRejectsLayoutThatIsNotRowMajor(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	for _, text := range []string{
		`%x: tensor<2x3xf32>) -> (tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}`,
		`%x: tensor<2x3xf32> {mhlo.layout_mode = "{0,1}"}) -> (tensor<2x3xf32>`,
	} {
		_, err := c.Compile(background, pjrt.Program{Code: []byte("module { func.func public @main(" + text +
			") { return %x : tensor<2x3xf32> } }"), Trusted: true}, pjrt.CompileOptions{})
		var ce *pjrt.CompileError
		require.ErrorAs(t, err, &ce)
	}
}

func TestTransfersRejectInvalidArguments(t *testing.T) {
	leaktest.Check(t)
	c, other := plugintest.CPU(t, 1), plugintest.CPU(t, 1)
	d := c.Devices()[0]
	data := pjrt.AlignedBytes(64)
	ended, cancel := context.WithCancel(background)
	cancel()
	deep := make([]int, 65)
	for i := range deep {
		deep[i] = 1
	}
	cases := map[string]struct {
		ctx   context.Context
		data  []byte
		dtype pjrt.DType
		dims  []int
		d     *pjrt.Device
		is    error
	}{
		"too short":             {background, data[:60], pjrt.F32, []int{16}, d, nil},
		"too long":              {background, data, pjrt.F32, []int{15}, d, nil},
		"no data":               {background, nil, pjrt.F32, []int{16}, d, nil},
		"data for nothing":      {background, data, pjrt.F32, []int{0}, d, nil},
		"a negative dimension":  {background, data, pjrt.F32, []int{-4, -4}, d, nil},
		"an overflow":           {background, data, pjrt.F32, []int{1 << 40, 1 << 40}, d, nil},
		"an overflow to zero":   {background, nil, pjrt.F32, []int{1 << 32, 1 << 32}, d, nil},
		"rank 65":               {background, data[:4], pjrt.F32, deep, d, nil},
		"an invalid type":       {background, data, pjrt.Invalid, []int{16}, d, nil},
		"a token":               {background, nil, pjrt.Token, nil, d, nil},
		"a negative type":       {background, data, pjrt.DType(-1), []int{64}, d, nil},
		"an unknown type":       {background, data, pjrt.DType(99), []int{64}, d, nil},
		"a type of a later API": {background, data, pjrt.U1, []int{64}, d, errors.ErrUnsupported},
		"no device":             {background, data, pjrt.F32, []int{16}, nil, nil},
		"a foreign device":      {background, data, pjrt.F32, []int{16}, other.Devices()[0], nil},
		"an ended context":      {ended, data, pjrt.F32, []int{16}, d, context.Canceled},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			closed := put(t, c, []float32{1}, pjrt.F32, nil, d)
			closed.Close()
			_, err1 := c.BufferFromHost(tc.ctx, tc.data, tc.dtype, tc.dims, tc.d)
			_, _, err2 := c.BufferFromHostZeroCopy(tc.ctx, tc.data, tc.dtype, tc.dims, tc.d)
			err3 := c.RefillFromHost(tc.ctx, closed, tc.data, tc.dtype, tc.dims, tc.d)
			for _, err := range []error{err1, err2, err3} {
				if tc.is != nil {
					require.ErrorIs(t, err, tc.is)
					continue
				}
				require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
			}
			assert.Equal(t, pjrt.Closed, closed.State())
		})
	}

	b := put(t, c, make([]float32, 4), pjrt.F32, []int{4}, d)
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(b.ToHost(background, make([]byte, 15))))
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(b.ToHost(background, make([]byte, 17))))
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(b.ToHost(background, nil)))
	require.ErrorIs(t, b.ToHost(ended, make([]byte, 16)), nil, "available contents need no wait")
	require.ErrorIs(t, c.RefillFromHost(background, b, make([]byte, 16), pjrt.F32, []int{4}, d), pjrt.ErrBusy,
		"it is live")
	require.Equal(t, errkind.InvalidArgumentError,
		errkind.KindOf(c.RefillFromHost(background, nil, make([]byte, 16), pjrt.F32, []int{4}, d)))
	require.Equal(t, errkind.InvalidArgumentError,
		errkind.KindOf(other.RefillFromHost(background, b, make([]byte, 16), pjrt.F32, []int{4}, d)))
	_, err := b.CopyToDevice(background, nil)
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
	_, err = b.CopyToDevice(background, other.Devices()[0])
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
	_, err = b.CopyToMemory(background, nil)
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
	_, err = b.CopyToMemory(background, other.Memories()[0])
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
	_, err = b.CopyToDevice(ended, d)
	require.ErrorIs(t, err, context.Canceled)
}

func TestCopyToDeviceAndMemory(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 3)
	src := put(t, c, []int32{1, 2, 3}, pjrt.S32, []int{3}, c.Devices()[0])
	for _, d := range c.Devices()[1:] {
		b, err := src.CopyToDevice(background, d)
		require.NoError(t, err)
		assert.Same(t, d, b.Device())
		assert.Equal(t, []int32{1, 2, 3}, get[int32](t, b, 3))
		require.NoError(t, b.Close())
	}
	for _, m := range c.Devices()[2].Memories() {
		b, err := src.CopyToMemory(background, m)
		require.NoError(t, err, m.Kind())
		assert.Same(t, m, b.Memory())
		assert.Same(t, c.Devices()[2], b.Device())
		assert.Equal(t, []int32{1, 2, 3}, get[int32](t, b, 3))
		require.NoError(t, b.Close())
	}
	assert.Equal(t, "device", src.Memory().Kind())
	require.NoError(t, src.Close())
	assert.Equal(t, "device", src.Memory().Kind())
}

// TestInPlaceBufferKeepsMemoryAfterDonation checks that a loop writes its results to the host
// memory that was passed to BufferFromHostInPlace.
func TestInPlaceBufferKeepsMemoryAfterDonation(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	d := c.Devices()[0]
	x, err := c.Compile(background, pjrt.Program{Code: []byte(`module {
  func.func public @main(%x: tensor<4096xi32> {tf.aliasing_output = 0 : i32}) -> tensor<4096xi32> {
    %one = stablehlo.constant dense<1> : tensor<4096xi32>
    %next = stablehlo.add %x, %one : tensor<4096xi32>
    return %next : tensor<4096xi32>
  }
}`), Trusted: true}, pjrt.CompileOptions{})
	require.NoError(t, err)
	defer x.Close()
	data, freed := pjrt.AlignedBytes(4*4096), make(chan struct{})
	data[4] = 40
	b, err := c.BufferFromHostInPlace(background, data, pjrt.S32, []int{4096}, d, func() { close(freed) })
	require.NoError(t, err)
	state := [][]*pjrt.Buffer{{b}}
	for range 2 {
		require.NoError(t, x.Execute(background, state, state, pjrt.ExecuteOptions{Donate: []bool{true}}))
	}
	assert.Equal(t, []int32{2, 42}, get[int32](t, b, 4096)[:2])
	assert.Equal(t, byte(42), data[4], "the program wrote to the host memory")
	select {
	case <-freed:
		t.Fatal("freed while a result uses the memory")
	case <-time.After(20 * time.Millisecond):
	}
	require.NoError(t, b.Close())
	select {
	case <-freed:
	case <-time.After(10 * time.Second):
		t.Fatal("not freed")
	}

	// After an error, the caller still owns the memory.
	_, err = c.BufferFromHostInPlace(background, data[1:65], pjrt.U8, []int{64}, d, func() { t.Error("freed") })
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
	_, err = c.BufferFromHostInPlace(background, data, pjrt.U8, []int{64}, d, func() { t.Error("freed") })
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
}

func TestZeroCopyUsesHostMemory(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	d := c.Devices()[0]
	data := pjrt.AlignedBytes(1 << 16)
	require.Zero(t, uintptr(unsafe.Pointer(&data[0]))%pjrt.Alignment)
	data[5] = 42
	b, released, err := c.BufferFromHostZeroCopy(background, data, pjrt.U8, []int{1 << 16}, d)
	require.NoError(t, err)
	data[6] = 43 // not allowed for callers; it shows that the memory is shared
	assert.Equal(t, []uint8{42, 43}, get[uint8](t, b, 1<<16)[5:7])
	runtime.GC()
	select {
	case <-released:
		t.Fatal("released while the buffer is open")
	case <-time.After(20 * time.Millisecond):
	}
	require.NoError(t, b.Close())
	select {
	case <-released:
	case <-time.After(10 * time.Second):
		t.Fatal("not released")
	}
	_, _, err = c.BufferFromHostZeroCopy(background, data[1:65], pjrt.U8, []int{64}, d)
	require.Equal(t, errkind.InvalidArgumentError, errkind.KindOf(err))
	assert.Contains(t, err.Error(), "AlignedBytes")
	empty, released, err := c.BufferFromHostZeroCopy(background, nil, pjrt.U8, []int{0}, d)
	require.NoError(t, err)
	require.NoError(t, empty.Close())
	<-released
}
