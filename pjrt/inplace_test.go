package pjrt_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// TestCloseDuringInPlaceLoops closes an executable while several loops run it in place. Each launch
// must complete or return ErrClosed.
func TestCloseDuringInPlaceLoops(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	for range 30 {
		x := compile(t, c, addOne(1), pjrt.CompileOptions{})
		started := make(chan struct{}, 4)
		var wg sync.WaitGroup
		for range cap(started) {
			b := put(t, c, make([]float32, 8), pjrt.F32, []int{1, 8}, c.Devices()[0])
			state := [][]*pjrt.Buffer{{b}}
			wg.Go(func() {
				n := 0
				for {
					err := x.Execute(background, state, state, pjrt.ExecuteOptions{Donate: []bool{true}})
					if err != nil {
						assert.ErrorIs(t, err, pjrt.ErrClosed)
						break
					}
					if n++; n == 10 {
						started <- struct{}{}
					}
				}
				assert.Equal(t, float32(n), get[float32](t, b, 8)[0], "every launch without an error has run")
			})
		}
		for range cap(started) {
			<-started
		}
		require.NoError(t, x.Close())
		wg.Wait()
	}
}

// TestInPlaceExecuteRejectsInvalidBuffers checks that an invalid call in place returns an
// ArgumentError and changes no buffer.
func TestInPlaceExecuteRejectsInvalidBuffers(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
	x := compile(t, c, many(2, 2), spmd(2))
	o := pjrt.ExecuteOptions{Donate: []bool{true, true}}
	state := rows(2, 2)
	for d, dev := range x.AddressableDevices() {
		for i := range state[d] {
			state[d][i] = put(t, c, make([]float32, 4), pjrt.F32, []int{1, 4}, dev)
		}
	}
	require.NoError(t, x.Execute(background, state, state, o))
	_, foreign, _ := step(t, 2, 2)
	wrong := put(t, c, make([]float32, 8), pjrt.F32, []int{2, 4}, c.Devices()[1])
	closed := put(t, c, make([]float32, 4), pjrt.F32, []int{1, 4}, c.Devices()[1])
	require.NoError(t, closed.Close())
	for name, b := range map[string]*pjrt.Buffer{"nil": nil, "of another client": foreign[1][1],
		"of another shape": wrong,
		"closed":           closed, "of another device": state[0][1], "twice": state[1][0]} {
		t.Run(name, func(t *testing.T) {
			bad := [][]*pjrt.Buffer{state[0], {state[1][0], b}}
			var ae *pjrt.ArgumentError
			require.ErrorAs(t, x.Execute(background, bad, bad, o), &ae)
			assert.Equal(t, 1, ae.Device)
			for _, row := range state {
				for _, b := range row {
					assert.Equal(t, pjrt.Live, b.State())
				}
			}
		})
	}
	require.NoError(t, x.Execute(background, state, state, o))
	assert.Equal(t, float32(2), get[float32](t, state[1][1], 4)[0])
}

// TestExecuteWithReorderedResults has results with the shapes of other parameters, so that the
// buffers must be reordered after each run.
func TestExecuteWithReorderedResults(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	for _, dims := range [][2][]int{{{2}, {8}}, {{2, 3}, {3, 2}}} {
		x0, y1 := put(t, c, make([]float32, product(dims[0])), pjrt.F32, dims[0], c.Devices()[0]),
			put(t, c, ones(product(dims[1])), pjrt.F32, dims[1], c.Devices()[0])
		x := compile(t, c, function("%x: "+tensorText(dims[0])+", %y: "+tensorText(dims[1]),
			tensorText(dims[1])+", "+tensorText(dims[0]),
			"return %y, %x : "+tensorText(dims[1])+", "+tensorText(dims[0])), pjrt.CompileOptions{})
		state := [][]*pjrt.Buffer{{x0, y1}}
		o := pjrt.ExecuteOptions{Donate: []bool{true, true}}
		for range 3 {
			require.NoError(t, x.Execute(background, state, state, o))
			assert.Equal(t, dims[1], state[0][0].Dims())
			assert.Equal(t, dims[0], state[0][1].Dims())
			assert.Equal(t, ones(product(dims[1])), get[float32](t, state[0][0], product(dims[1])))
			assert.Equal(t, make([]float32, product(dims[0])), get[float32](t, state[0][1], product(dims[0])))
			var ae *pjrt.ArgumentError
			require.ErrorAs(t, x.Execute(background, state, state, o), &ae, "the buffers have exchanged their shapes")
			state[0][0], state[0][1] = state[0][1], state[0][0]
		}
	}
}

func product(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

func ones(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = 1
	}
	return out
}

func tensorText(dims []int) string {
	text := "tensor<"
	for _, d := range dims {
		text += strconv.Itoa(d) + "x"
	}
	return text + "f32>"
}

// If the parameters are unknown, the first call determines the number of arguments.
func TestExecuteRejectsChangedNumberOfArguments(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, function("%x: tensor<2xf32>", "", "return"), pjrt.CompileOptions{})
	pjrt.ForgetParameters(x)
	b := put(t, c, []float32{1, 2}, pjrt.F32, []int{2}, c.Devices()[0])
	require.NoError(t, x.Execute(background, [][]*pjrt.Buffer{{b}}, rows(1, 0), pjrt.ExecuteOptions{}))
	require.NoError(t, b.Close())
	var ae *pjrt.ArgumentError
	require.ErrorAs(t, x.Execute(background, [][]*pjrt.Buffer{{}}, rows(1, 0), pjrt.ExecuteOptions{}), &ae)
}

// A buffer from another memory is in the default memory of the device after a run in place.
func TestInPlaceResultIsInDefaultMemory(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, addOne(1), pjrt.CompileOptions{})
	b := put(t, c, make([]float32, 8), pjrt.F32, []int{1, 8}, c.Devices()[0])
	state, o := [][]*pjrt.Buffer{{b}}, pjrt.ExecuteOptions{Donate: []bool{true}}
	require.NoError(t, x.Execute(background, state, state, o))
	home := b.Memory()
	for _, m := range c.Devices()[0].Memories() {
		moved, err := b.CopyToMemory(background, m)
		require.NoError(t, err)
		defer moved.Close()
		require.NoError(t, moved.Ready(background))
		assert.Same(t, m, moved.Memory())
		there := [][]*pjrt.Buffer{{moved}}
		for range 2 {
			require.NoError(t, x.Execute(background, there, there, o))
			assert.Same(t, home, moved.Memory())
		}
	}
}
