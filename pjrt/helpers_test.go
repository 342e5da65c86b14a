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

// TestMain checks that no goroutine runs after the tests.
func TestMain(m *testing.M) {
	if os.Getenv("TPUSTRATEGY_TEST_CHILD") != "" {
		os.Exit(m.Run())
	}
	goleak.VerifyTestMain(m)
}

// background cannot be canceled. Many functions have a separate implementation for such contexts.
var background = context.Background()

// addOne returns a program that adds 1 to a donated F32[n,8] tensor, which is split over n devices.
func addOne(n int) pjrt.Program {
	return pjrt.Program{Code: fmt.Appendf(nil, `module @add_one {
  sdy.mesh @mesh = <["d"=%[1]d]>
  func.func public @main(%%x: tensor<%[1]dx8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>,
	tf.aliasing_output = 0 : i32}) -> (tensor<%[1]dx8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) {
    %%c = stablehlo.constant dense<1.0> : tensor<%[1]dx8xf32>
    %%o = stablehlo.add %%x, %%c : tensor<%[1]dx8xf32>
    return %%o : tensor<%[1]dx8xf32>
  }
}`, n), Trusted: true}
}

// many returns a program that adds 1 to each of k donated F32[n,4] tensors, which are split over n
// devices.
func many(n, k int) pjrt.Program {
	var in, out, body, ret, types string
	for i := range k {
		sep := ", "
		if i == k-1 {
			sep = ""
		}
		in += fmt.Sprintf(
			`%%x%d: tensor<%dx4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>, tf.aliasing_output = %d : i32}%s`, i, n,
			i, sep)
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

// spmd returns options for one replica with n partitions on devices 0 to n-1.
func spmd(n int) pjrt.CompileOptions {
	row := make([]int, n)
	for i := range row {
		row[i] = i
	}
	return pjrt.CompileOptions{Partitions: n, SPMD: true, Shardy: true, DeviceAssignment: [][]int{row}}
}

// function returns a module with a main function.
func function(in, out, body string) pjrt.Program {
	return pjrt.Program{Code: fmt.Appendf(nil, "module @m {\n func.func public @main(%s) -> (%s) {\n%s\n}\n}", in, out,
		body), Trusted: true}
}

// two returns a program with parameters x: F32[2,3], which can be donated, and y: S32[4], and
// results x+x and y.
func two() pjrt.Program {
	return function("%x: tensor<2x3xf32> {jax.buffer_donor = true}, %y: tensor<4xi32>",
		"tensor<2x3xf32>, tensor<4xi32>",
		"%o = stablehlo.add %x, %x : tensor<2x3xf32>\n return %o, %y : tensor<2x3xf32>, tensor<4xi32>")
}

// spin returns a program that runs a matrix product as often as its S32 argument specifies, so that
// the plugin does not run it synchronously.
func spin() pjrt.Program {
	return function("%n: tensor<i32>", "tensor<i32>, tensor<128x128xf32>", `
%zero = stablehlo.constant dense<0> : tensor<i32>
%one = stablehlo.constant dense<1> : tensor<i32>
%m = stablehlo.constant dense<1.0> : tensor<128x128xf32>
%r:3 = stablehlo.while(%i = %zero, %end = %n, %a = %m) : tensor<i32>, tensor<i32>, tensor<128x128xf32>
 cond { %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.return %c : tensor<i1>
 } do { %next = stablehlo.add %i, %one : tensor<i32>
  %b = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<128x128xf32>,
	tensor<128x128xf32>) -> tensor<128x128xf32>
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

func put[T pjrt.Element](t testing.TB, c *pjrt.Client, data []T, dtype pjrt.DType, dims []int,
	d *pjrt.Device) *pjrt.Buffer {
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

// rows returns result lists for Execute with nil entries.
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

// inTPUChild runs the test in a child process and reports whether the current process is the child.
// libtpu reads its environment only once and may abort the process.
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
