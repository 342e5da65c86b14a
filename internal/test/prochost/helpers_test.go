package prochost_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/internal/test/prochost"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// listen starts a machine with the given number of devices on a Unix socket.
func listen(t testing.TB, devices int, opts prochost.Options) *prochost.Machine {
	t.Helper()
	base := plugintest.System(t, devices)
	m, err := prochost.Listen(base, "unix", filepath.Join(t.TempDir(), "machine"), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// host returns the configuration of a host that has the plugin of this process.
func host(t testing.TB, m *prochost.Machine, run string, process, processes int) prochost.Host {
	h := m.Host(run, process, processes)
	h.Plugin = plugintest.Path(t, "cpu")
	return h
}

// open opens all hosts of a run in this process.
func open(t testing.TB, m *prochost.Machine, run string, n int) []*system.System {
	t.Helper()
	systems := make([]*system.System, n)
	for i, err := range each(n, func(i int) (err error) {
		systems[i], err = system.Open(context.Background(), system.Options{Connect: host(t, m, run, i, n).Connect()})
		return err
	}) {
		require.NoError(t, err, "host %d", i)
		t.Cleanup(func() { require.NoError(t, systems[i].Close()) })
	}
	return systems
}

// each calls f for every host concurrently and returns the errors by host.
func each(n int, f func(host int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

func bytesOf(x float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)) }

func floatOf(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// sum is a program that sums one number per device. Each device receives the sum in place of its
// number.
const sum = `module @%NAME attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["d"=4]>
  func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>, tf.aliasing_output = 0 : i32}) -> (tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
    %z = stablehlo.broadcast_in_dim %y, dims = [] : (tensor<f32>) -> tensor<4xf32>
    return %z : tensor<4xf32>
  }
}
`

func compile(t testing.TB, sys *system.System, name string, ids ...int) system.Executable {
	t.Helper()
	x, err := compileSum(sys, name, ids...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

func compileSum(sys *system.System, name string, ids ...int) (system.Executable, error) {
	code := []byte(strings.ReplaceAll(sum, "%NAME", name))
	return sys.Runtime().Compile(context.Background(), pjrt.Program{Code: code, Format: "mlir", Trusted: true},
		pjrt.CompileOptions{
			Replicas: 1, Partitions: len(ids), DeviceAssignment: [][]int{ids}, SPMD: true, Shardy: true,
		})
}

// put copies value to each device of a program.
func put(ctx context.Context, sys *system.System, x system.Executable, value float32) (rows [][]*pjrt.Buffer,
	err error) {
	for _, d := range x.AddressableDevices() {
		b, err := sys.Runtime().BufferFromHost(ctx, bytesOf(value), pjrt.F32, []int{1}, d)
		if err != nil {
			return nil, err
		}
		rows = append(rows, []*pjrt.Buffer{b})
	}
	return rows, nil
}

// total reads the number of the first device and closes all buffers.
func total(ctx context.Context, rows [][]*pjrt.Buffer) (float32, error) {
	out := make([]byte, 4)
	err := rows[0][0].ToHost(ctx, out)
	for _, row := range rows {
		err = errors.Join(err, row[0].Close())
	}
	return floatOf(out), err
}

// launch runs sum with value on each of the host's devices and returns the total.
func launch(ctx context.Context, sys *system.System, x system.Executable, value float32) (float32, error) {
	args, err := put(ctx, sys, x, value)
	if err != nil {
		return 0, err
	}
	results := make([][]*pjrt.Buffer, len(args))
	for d := range results {
		results[d] = []*pjrt.Buffer{nil}
	}
	err = x.Execute(ctx, args, results, pjrt.ExecuteOptions{})
	for _, row := range args {
		err = errors.Join(err, row[0].Close())
	}
	if err != nil {
		return 0, err
	}
	return total(ctx, results)
}
