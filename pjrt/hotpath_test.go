package pjrt_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// step returns a program whose arguments are donated and replaced by its results, and its
// arguments.
func step(t testing.TB, devices, args int) (x *pjrt.LoadedExecutable, state [][]*pjrt.Buffer, o pjrt.ExecuteOptions) {
	c := plugintest.CPU(t, devices)
	x = compile(t, c, many(devices, args), spmd(devices))
	state = rows(devices, args)
	o.Donate = make([]bool, args)
	for i := range args {
		o.Donate[i] = true
		for d, dev := range x.AddressableDevices() {
			state[d][i] = put(t, c, make([]float32, 4), pjrt.F32, []int{1, 4}, dev)
		}
	}
	return x, state, o
}

func wait(t testing.TB, state [][]*pjrt.Buffer) {
	for _, row := range state {
		for _, b := range row {
			if err := b.Ready(background); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestStepDoesNotAllocate(t *testing.T) {
	for _, size := range []struct{ devices, args int }{{1, 1}, {1, 20}, {8, 1}, {8, 20}, {8, 500}} {
		t.Run(fmt.Sprintf("%d devices, %d arguments", size.devices, size.args), func(t *testing.T) {
			x, state, o := step(t, size.devices, size.args)
			b := state[0][0]
			out := make([]byte, b.Bytes())
			for what, f := range map[string]func(){
				"Execute": func() {
					if err := x.Execute(background, state, state, o); err != nil {
						t.Fatal(err)
					}
				},
				"IsReady": func() {
					if _, err := b.IsReady(); err != nil {
						t.Fatal(err)
					}
				},
				"Ready": func() {
					if err := b.Ready(background); err != nil {
						t.Fatal(err)
					}
				},
				"ToHost": func() {
					if err := b.ToHost(background, out); err != nil {
						t.Fatal(err)
					}
				},
				"Dims, DType, Device, State": func() { _, _, _, _ = b.Dims(), b.DType(), b.Device(), b.State() },
			} {
				assert.Zero(t, testing.AllocsPerRun(100, f), what)
			}
			wait(t, state)
		})
	}
}

func TestReadyDoesNotAllocate(t *testing.T) {
	if plugintest.Instrumented {
		t.Skip("the race detector makes pools discard objects at random")
	}
	x, state, o := step(t, 8, 20)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waits := 0
	for rounds := 0; waits == 0 && rounds < 100; rounds++ { // another program may take this thread's processor
		assert.Zero(t, testing.AllocsPerRun(200, func() {
			for range 4 {
				if err := x.Execute(background, state, state, o); err != nil {
					t.Fatal(err)
				}
			}
			if ready, err := state[7][19].IsReady(); err == nil && !ready {
				waits++
			}
			if err := state[7][19].Ready(ctx); err != nil {
				t.Fatal(err)
			}
		}))
	}
	assert.Positive(t, waits, "the contents were always available, so no wait was measured")
}

func TestRefillDoesNotAllocate(t *testing.T) {
	c := plugintest.CPU(t, 1)
	b := put(t, c, make([]float32, 8), pjrt.F32, []int{8}, c.Devices()[0])
	data, dims, d := make([]byte, 32), []int{8}, c.Devices()[0]
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		b.Close()
		if err := c.RefillFromHost(background, b, data, pjrt.F32, dims, d); err != nil {
			t.Fatal(err)
		}
	}))
}

// rss returns the resident memory of the process in KiB, or 0 if it is not meaningful.
func rss(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil || plugintest.Instrumented {
		return 0
	}
	_, after, _ := strings.Cut(string(text), "VmRSS:")
	n, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	return n
}

// growth returns by how many KiB the memory of the process grows while f runs, at least, in up to
// three runs. A leak grows in each run, but the Go heap and other tests do not.
func growth(t *testing.T, f func()) (least, runs int) {
	t.Helper()
	for runs = range 3 {
		runtime.GC()
		before := rss(t)
		f()
		grown := rss(t) - before
		if runs == 0 || grown < least {
			least = grown
		}
		if least < allowedGrowth {
			break
		}
	}
	return least, runs + 1
}

// allowedGrowth is the limit in KiB, which is about 100 bytes per call.
const allowedGrowth = 8 << 10

func TestStepsDoNotLeak(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	leaktest.Check(t)
	x, state, o := step(t, 1, 1)
	fresh := rows(1, 1)
	run := func(n int) {
		for range n {
			require.NoError(t, x.Execute(background, state, state, o))
			// Also through new Go objects.
			require.NoError(t, x.Execute(background, state, fresh, pjrt.ExecuteOptions{}))
			require.NoError(t, fresh[0][0].Close())
			fresh[0][0] = nil
		}
		wait(t, state)
		runtime.GC()
	}
	run(10_000)
	open := leaktest.OpenObjects()
	grown, runs := growth(t, func() { run(50_000) }) // 10^5 executions
	assert.Less(t, grown, allowedGrowth, "KiB of growth over 10^5 executions")
	assert.Equal(t, open, leaktest.OpenObjects())
	assert.Equal(t, float32(10_000+50_000*runs), get[float32](t, state[0][0], 4)[0])
}

func TestFailedCallsDoNotLeak(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	x := compile(t, c, two(), pjrt.CompileOptions{})
	b := put(t, c, make([]float32, 6), pjrt.F32, []int{2, 3}, c.Devices()[0])
	run := func(n int) {
		for range n {
			_ = x.Execute(background, [][]*pjrt.Buffer{{b, b}}, rows(1, 2), pjrt.ExecuteOptions{})
			_, _ = c.BufferFromHost(background, nil, pjrt.F32, []int{2}, c.Devices()[0])
			_, _ = x.Executable().ParameterMemoryKinds()
			_, _ = c.LookupDevice(9)
		}
		runtime.GC()
	}
	run(2000)
	grown, _ := growth(t, func() { run(20_000) })
	assert.Less(t, grown, allowedGrowth, "KiB of growth")
}

func BenchmarkExecute(b *testing.B) {
	for _, size := range []struct{ devices, args int }{{1, 1}, {2, 1}, {8, 1}, {1, 20}, {8, 20}} {
		b.Run(fmt.Sprintf("devices=%d/args=%d", size.devices, size.args), func(b *testing.B) {
			x, state, o := step(b, size.devices, size.args)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := x.Execute(background, state, state, o); err != nil {
					b.Fatal(err)
				}
				if i%20 == 19 {
					wait(b, state)
				}
			}
			wait(b, state)
		})
	}
}

func BenchmarkFloor(b *testing.B) {
	for _, size := range []struct{ devices, args int }{{1, 1}, {2, 1}, {8, 1}, {1, 20}, {8, 20}} {
		b.Run(fmt.Sprintf("devices=%d/args=%d", size.devices, size.args), func(b *testing.B) {
			x, state, _ := step(b, size.devices, size.args)
			b.ReportAllocs()
			for n := b.N; n > 0; n -= 20 {
				if _, err := x.MeasureLoop(background, state, min(n, 20)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkBuffer(b *testing.B) {
	c := plugintest.CPU(b, 1)
	d := c.Devices()[0]
	data := pjrt.AlignedBytes(1 << 20)
	buffer := put(b, c, data, pjrt.U8, []int{1 << 20}, d)
	require.NoError(b, buffer.Ready(background))
	out := make([]byte, 1<<20)
	small := put(b, c, data[:4], pjrt.U8, []int{4}, d)
	for name, f := range map[string]func() error{
		"IsReady":      func() error { _, err := small.IsReady(); return err },
		"Dims":         func() error { _ = small.Dims(); return nil },
		"ToHost 4 B":   func() error { return small.ToHost(background, out[:4]) },
		"ToHost 1 MiB": func() error { return buffer.ToHost(background, out) },
		"FromHost 1 MiB": func() error {
			b, err := c.BufferFromHost(background, data, pjrt.U8, []int{1 << 20}, d)
			b.Close()
			return err
		},
		"ZeroCopy 1 MiB": func() error {
			b, _, err := c.BufferFromHostZeroCopy(background, data, pjrt.U8, []int{1 << 20}, d)
			b.Close()
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := f(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
