package pjrt_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
)

// goleak sees the goroutines that wait for events: they end with their client.
func TestMain(m *testing.M) {
	if os.Getenv("TPUSTRATEGY_TEST_CHILD") != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// background cannot end, as a step loop's context often cannot.
var background = context.Background()

// addOne is x+1 of F32[n,8] split over a mesh of n devices, x donated.
func addOne(n int) pjrt.Program {
	return pjrt.Program{Code: fmt.Appendf(nil, `module @add_one {
  sdy.mesh @mesh = <["d"=%[1]d]>
  func.func public @main(%%x: tensor<%[1]dx8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>, tf.aliasing_output = 0 : i32}) -> (tensor<%[1]dx8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) {
    %%c = stablehlo.constant dense<1.0> : tensor<%[1]dx8xf32>
    %%o = stablehlo.add %%x, %%c : tensor<%[1]dx8xf32>
    return %%o : tensor<%[1]dx8xf32>
  }
}`, n), Trusted: true}
}

// many adds 1 to each of k F32[n,4] arguments over n devices, all donated.
func many(n, k int) pjrt.Program {
	var in, out, body, ret, types string
	for i := range k {
		sep := ", "
		if i == k-1 {
			sep = ""
		}
		in += fmt.Sprintf(`%%x%d: tensor<%dx4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>, tf.aliasing_output = %d : i32}%s`, i, n, i, sep)
		out += fmt.Sprintf(`tensor<%dx4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}%s`, n, sep)
		body += fmt.Sprintf("%%o%d = stablehlo.add %%x%d, %%c : tensor<%dx4xf32>\n", i, i, n)
		ret += fmt.Sprintf("%%o%d%s", i, sep)
		types += fmt.Sprintf("tensor<%dx4xf32>%s", n, sep)
	}
	return pjrt.Program{Code: fmt.Appendf(nil, `module @many {
  sdy.mesh @mesh = <["d"=%d]>
  func.func public @main(%s) -> (%s) {
    %%c = stablehlo.constant dense<1.0> : tensor<%dx4xf32>
    %s
    return %s : %s
  }
}`, n, in, out, n, body, ret, types), Trusted: true}
}

// spmd are the options for one replica of n partitions on devices 0 to n-1.
func spmd(n int) pjrt.CompileOptions {
	row := make([]int, n)
	for i := range row {
		row[i] = i
	}
	return pjrt.CompileOptions{Partitions: n, SPMD: true, Shardy: true, DeviceAssignment: [][]int{row}}
}

// function wraps a body into a module with a main.
func function(in, out, body string) pjrt.Program {
	return pjrt.Program{Code: fmt.Appendf(nil, "module @m {\n func.func public @main(%s) -> (%s) {\n%s\n}\n}", in, out, body), Trusted: true}
}

// two takes x: F32[2,3] and y: S32[4], and gives x+x and y; x may be donated.
func two() pjrt.Program {
	return function("%x: tensor<2x3xf32> {jax.buffer_donor = true}, %y: tensor<4xi32>", "tensor<2x3xf32>, tensor<4xi32>",
		"%o = stablehlo.add %x, %x : tensor<2x3xf32>\n return %o, %y : tensor<2x3xf32>, tensor<4xi32>")
}

// spin counts to its S32 argument with a matrix product in each round, so that the plugin does not
// find it cheap enough to run inside the call.
func spin() pjrt.Program {
	return function("%n: tensor<i32>", "tensor<i32>, tensor<128x128xf32>", `
%zero = stablehlo.constant dense<0> : tensor<i32>
%one = stablehlo.constant dense<1> : tensor<i32>
%m = stablehlo.constant dense<1.0> : tensor<128x128xf32>
%r:3 = stablehlo.while(%i = %zero, %end = %n, %a = %m) : tensor<i32>, tensor<i32>, tensor<128x128xf32>
 cond { %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %c : tensor<i1>
 } do { %next = stablehlo.add %i, %one : tensor<i32>
  %b = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<128x128xf32>, tensor<128x128xf32>) -> tensor<128x128xf32>
  %t = stablehlo.tanh %b : tensor<128x128xf32>
  stablehlo.return %next, %end, %t : tensor<i32>, tensor<i32>, tensor<128x128xf32> }
return %r#0, %r#2 : tensor<i32>, tensor<128x128xf32>`)
}

func compile(t testing.TB, c *pjrt.Client, p pjrt.Program, o pjrt.CompileOptions) *pjrt.LoadedExecutable {
	t.Helper()
	x, err := c.Compile(background, p, o)
	require.NoError(t, err)
	t.Cleanup(func() { x.Close() })
	return x
}

func put[T pjrt.Element](t testing.TB, c *pjrt.Client, data []T, dtype pjrt.DType, dims []int, d *pjrt.Device) *pjrt.Buffer {
	t.Helper()
	b, err := c.BufferFromHost(background, pjrt.Bytes(data), dtype, dims, d)
	require.NoError(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

func get[T pjrt.Element](t testing.TB, b *pjrt.Buffer, n int) []T {
	t.Helper()
	out := make([]T, n)
	require.NoError(t, b.ToHost(background, pjrt.Bytes(out)))
	return out
}

// rows makes result lists of nil for an Execute.
func rows(devices, results int) [][]*pjrt.Buffer {
	out := make([][]*pjrt.Buffer, devices)
	for d := range out {
		out[d] = make([]*pjrt.Buffer, results)
	}
	return out
}

func closeAll(lists ...[][]*pjrt.Buffer) {
	for _, l := range lists {
		for _, row := range l {
			for _, b := range row {
				if b != nil {
					b.Close()
				}
			}
		}
	}
}

// libtpu reads its environment once and may end the process, so each test of it has a process of
// its own.
func inTPUChild(t *testing.T) bool {
	t.Helper()
	plugintest.Path(t, "tpu")
	if plugintest.InChild(t) {
		return true
	}
	out, err := plugintest.Child(t, plugintest.TPUEnv()...)
	require.NoError(t, err, out)
	return false
}
