package pjrt_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// slowStep adds 1 to the first element of a donated matrix, after products of milliseconds that add
// nothing.
func slowStep(t *testing.T, c *pjrt.Client) *pjrt.LoadedExecutable {
	t.Helper()
	const typ = "tensor<512x512xf32>"
	var b strings.Builder
	fmt.Fprintf(&b, "module @slow {\n func.func @main(%%a: %[1]s {tf.aliasing_output = 0 : i32}) -> %[1]s {\n", typ)
	fmt.Fprintf(&b, "  %%zero = stablehlo.constant dense<0.0> : %[1]s\n  %%z = stablehlo.multiply %%a, %%zero : %[1]s\n", typ)
	last := "%z"
	for i := range 8 {
		fmt.Fprintf(&b, "  %%%d = stablehlo.dot_general %s, %%a, contracting_dims = [1] x [0] : (%[3]s, %[3]s) -> %[3]s\n", i, last, typ)
		last = fmt.Sprintf("%%%d", i)
	}
	fmt.Fprintf(&b, "  %%one = stablehlo.constant dense<1.0> : %[1]s\n  %%b = stablehlo.add %%a, %%one : %[1]s\n", typ)
	fmt.Fprintf(&b, "  %%r = stablehlo.add %%b, %s : %s\n  return %%r : %s\n }\n}\n", last, typ, typ)
	x, err := c.Compile(background, pjrt.Program{Code: []byte(b.String())}, pjrt.CompileOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func TestDonatingLaunchesArePipelined(t *testing.T) {
	c := plugintest.CPU(t, 1)
	x := slowStep(t, c)
	b, err := c.BufferFromHost(background, make([]byte, 4*512*512), pjrt.F32, []int{512, 512}, c.AddressableDevices()[0])
	require.NoError(t, err)
	defer b.Close()
	state := [][]*pjrt.Buffer{{b}}
	run := func() time.Duration {
		start := time.Now()
		require.NoError(t, x.Execute(background, state, state, pjrt.ExecuteOptions{Donate: []bool{true}}))
		return time.Since(start)
	}
	// The fastest of several, as on a busy machine any call may have to wait.
	call, whole := time.Hour, time.Hour
	for range 5 {
		start := time.Now()
		call = min(call, run())
		require.NoError(t, b.Ready(background))
		whole = min(whole, time.Since(start))
	}
	assert.Less(t, call, whole/2, "a launch returns while its program runs")
	for range 20 { // more than may be under way: later ones wait for earlier ones
		run()
	}
	data := make([]byte, 4*512*512)
	require.NoError(t, b.ToHost(background, data))
	assert.EqualValues(t, 25, math.Float32frombits(binary.LittleEndian.Uint32(data)))
	run() // and the executable closes while one is under way
}
