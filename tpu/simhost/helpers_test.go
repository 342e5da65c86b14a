package simhost_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/tpu/simhost"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

func replaceAll(text, old, new string) string { return strings.ReplaceAll(text, old, new) }

func bytesOf(x float32) []byte { return binary.LittleEndian.AppendUint32(nil, math.Float32bits(x)) }

func floatOf(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) }

// each runs a function for all processes concurrently and returns their errors.
func each(n int, f func(process int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errs
}

func open(t testing.TB, c *simhost.Cluster, n int) []*system.System {
	t.Helper()
	systems := make([]*system.System, n)
	for i, err := range each(n, func(i int) (err error) {
		systems[i], err = c.Open(context.Background(), i)
		return err
	}) {
		require.NoError(t, err, "process %d", i)
		t.Cleanup(func() { require.NoError(t, systems[i].Close()) })
	}
	return systems
}

// sum adds the numbers of all devices. Each device receives the total.
const sum = `module @%NAME attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 4 : i32} {
  sdy.mesh @mesh = <["d"=4]>
  func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh,
	[{"d"}]>}) -> (tensor<f32> {sdy.sharding = #sdy.sharding<@mesh, []>}) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %y = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>,
	tensor<f32>) -> tensor<f32>
    return %y : tensor<f32>
  }
}
`

func compile(t testing.TB, sys *system.System, name string, ids ...int) system.Executable {
	t.Helper()
	code := []byte(replaceAll(sum, "%NAME", name))
	x, err := sys.Runtime().Compile(context.Background(), pjrt.Program{Code: code, Format: "mlir", Trusted: true},
		pjrt.CompileOptions{
			Replicas: 1, Partitions: len(ids), DeviceAssignment: [][]int{ids}, SPMD: true, Shardy: true,
		})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// launch runs the sum with the numbers of the process and returns the total.
func launch(ctx context.Context, sys *system.System, x system.Executable, value float32) (float32, error) {
	var args, results [][]*pjrt.Buffer
	for _, d := range x.AddressableDevices() {
		b, err := sys.Runtime().BufferFromHost(ctx, bytesOf(value), pjrt.F32, []int{1}, d)
		if err != nil {
			return 0, err
		}
		defer b.Close()
		args, results = append(args, []*pjrt.Buffer{b}), append(results, []*pjrt.Buffer{nil})
	}
	if err := x.Execute(ctx, args, results, pjrt.ExecuteOptions{}); err != nil {
		return 0, err
	}
	out := make([]byte, 4)
	err := results[0][0].ToHost(ctx, out)
	for _, row := range results {
		err = errors.Join(err, row[0].Close())
	}
	return floatOf(out), err
}
