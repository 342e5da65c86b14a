package pjrt_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/internal/capi"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// TestConcurrentCollectivesDoNotDeadlock launches two programs with collectives from many
// goroutines. If the devices received them in different orders, they would deadlock.
func TestConcurrentCollectivesDoNotDeadlock(t *testing.T) {
	leaktest.Check(t)
	const n = 4
	c := plugintest.CPU(t, n)
	sum := func(shape string) pjrt.Program {
		return function("%x: tensor<"+shape+"xf32>", "tensor<"+shape+"xf32>",
			`%o = "stablehlo.all_reduce"(%x) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
 %s = stablehlo.add %a, %b : tensor<f32>
 stablehlo.return %s : tensor<f32> }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
	channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
	use_global_device_ids} : (tensor<`+shape+`xf32>) -> tensor<`+shape+`xf32>
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

// TestNumberOfRunningLaunchesIsLimited starts thousands of launches without waiting. The plugin
// deadlocks if about a thousand parts are in its queues.
func TestNumberOfRunningLaunchesIsLimited(t *testing.T) {
	leaktest.Check(t)
	const n = 4
	c := plugintest.CPU(t, n)
	x := compile(t, c, function("%x: tensor<8xf32>", "tensor<8xf32>",
		`%o = "stablehlo.all_reduce"(%x) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
 %s = stablehlo.add %a, %b : tensor<f32>
 stablehlo.return %s : tensor<f32> }) {replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>,
	channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
	use_global_device_ids} : (tensor<8xf32>) -> tensor<8xf32>
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

// slowStep returns a program that adds 1 to the first element of a donated matrix and takes
// milliseconds.
func slowStep(t *testing.T, c *pjrt.Client) *pjrt.LoadedExecutable {
	t.Helper()
	const typ = "tensor<512x512xf32>"
	var b strings.Builder
	fmt.Fprintf(&b, "module @slow {\n func.func @main(%%a: %[1]s {tf.aliasing_output = 0 : i32}) -> %[1]s {\n", typ)
	fmt.Fprintf(&b, "  %%zero = stablehlo.constant dense<0.0> : %[1]s\n  %%z = stablehlo.multiply %%a, %%zero : %[1]s\n",
		typ)
	last := "%z"
	for i := range 8 {
		fmt.Fprintf(&b, "  %%%d = stablehlo.dot_general %s, %%a, contracting_dims = [1] x [0] : (%[3]s, %[3]s) -> %[3]s\n", i,
			last, typ)
		last = fmt.Sprintf("%%%d", i)
	}
	fmt.Fprintf(&b, "  %%one = stablehlo.constant dense<1.0> : %[1]s\n  %%b = stablehlo.add %%a, %%one : %[1]s\n", typ)
	fmt.Fprintf(&b, "  %%r = stablehlo.add %%b, %s : %s\n  return %%r : %s\n }\n}\n", last, typ, typ)
	x, err := c.Compile(background, pjrt.Program{Code: []byte(b.String()), Trusted: true}, pjrt.CompileOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func TestLaunchesWithDonationArePipelined(t *testing.T) {
	c := plugintest.CPU(t, 1)
	x := slowStep(t, c)
	b, err := c.BufferFromHost(background, make([]byte, 4*512*512), pjrt.F32, []int{512, 512},
		c.AddressableDevices()[0])
	require.NoError(t, err)
	defer b.Close()
	state := [][]*pjrt.Buffer{{b}}
	run := func() time.Duration {
		start := time.Now()
		require.NoError(t, x.Execute(background, state, state, pjrt.ExecuteOptions{Donate: []bool{true}}))
		return time.Since(start)
	}
	// The minimum of several runs, because any call may be slow on a busy machine.
	call, total := time.Hour, time.Hour
	for range 5 {
		start := time.Now()
		call = min(call, run())
		require.NoError(t, b.Ready(background))
		total = min(total, time.Since(start))
	}
	assert.Less(t, call, total/2, "a launch returns while its program runs")
	for range 20 { // more than the limit of running launches
		run()
	}
	data := make([]byte, 4*512*512)
	require.NoError(t, b.ToHost(background, data))
	assert.EqualValues(t, 25, math.Float32frombits(binary.LittleEndian.Uint32(data)))
	run() // the executable is closed during this run
}

// TestDonatedHandlesAreFreedAfterRun launches programs with donated arguments. For a program with
// many parameters, a launch frees the handles of completed runs; for a program with few parameters,
// the handles are freed after eight launches.
func TestDonatedHandlesAreFreedAfterRun(t *testing.T) {
	leaktest.Check(t)
	for args, most := range map[int]int{4: capi.LaunchDepth, 40: 1} {
		for _, inPlace := range []bool{true, false} {
			x, state, o := step(t, 2, args)
			into := state
			if !inPlace { // results replace other arguments, and one argument is not donated
				o.Donate[0] = false
				into = rows(2, args)
				for d, row := range state {
					for j := range row[1:] {
						into[d][j] = row[1+j]
					}
				}
			}
			fewest := capi.LaunchDepth
			for n := range 30 {
				require.NoError(t, x.Execute(background, state, into, o))
				wait(t, state)
				if !inPlace {
					wait(t, into)
					for d := range into {
						require.NoError(t, into[d][args-1].Close())
						into[d][args-1] = nil
					}
				}
				kept := pjrt.Kept(x)
				assert.LessOrEqual(t, kept, capi.LaunchDepth)
				if n >= capi.LaunchDepth {
					fewest = min(fewest, kept)
				}
			}
			assert.LessOrEqual(t, fewest, most, "%d parameters", args)
			if most == capi.LaunchDepth {
				assert.Equal(t, most, fewest)
			}
			closeAll(state)
			require.NoError(t, x.Close())
		}
	}

	// Launches without waits have correct results.
	x, state, o := step(t, 8, 40)
	for range 200 {
		require.NoError(t, x.Execute(background, state, state, o))
		assert.LessOrEqual(t, pjrt.Kept(x), capi.LaunchDepth)
	}
	for _, row := range state {
		for _, b := range row {
			assert.Equal(t, []float32{200, 200, 200, 200}, get[float32](t, b, 4))
		}
	}
	require.NoError(t, x.Execute(background, state, state, o)) // the executable is closed during this run
	closeAll(state)
}
