package pjrt_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tpustrategy/internal/plugintest"
	"tpustrategy/pjrt"
)

// addOne is x+1 on every device of a mesh of n.
func addOne(n int) pjrt.Program {
	return pjrt.Program{Code: fmt.Appendf(nil, `module @add_one attributes {mhlo.num_partitions = %d : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["d"=%d]>
  func.func public @main(%%x: tensor<%dx8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>, tf.aliasing_output = 0 : i32}) -> (tensor<%dx8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) {
    %%c = stablehlo.constant dense<1.0> : tensor<%dx8xf32>
    %%o = stablehlo.add %%x, %%c : tensor<%dx8xf32>
    return %%o : tensor<%dx8xf32>
  }
}`, n, n, n, n, n, n, n)}
}

func spmd(n int) pjrt.CompileOptions {
	row := make([]int, n)
	for i := range row {
		row[i] = i
	}
	return pjrt.CompileOptions{Partitions: n, SPMD: true, Shardy: true, DeviceAssignment: [][]int{row}}
}

func TestStepLoopWithDonatedStateOnEightDevices(t *testing.T) {
	const n = 8
	ctx := context.Background()
	c := plugintest.CPU(t, n)
	x, err := c.Compile(ctx, addOne(n), spmd(n))
	require.NoError(t, err)
	defer x.Close()
	params, known := x.Parameters()
	require.True(t, known)
	assert.Equal(t, []pjrt.TensorType{{DType: pjrt.F32, Dims: []int{1, 8}}}, params)
	state := make([][]*pjrt.Buffer, n)
	for d, dev := range x.AddressableDevices() {
		b, err := c.BufferFromHost(ctx, pjrt.Bytes(make([]float32, 8)), pjrt.F32, []int{1, 8}, dev)
		require.NoError(t, err)
		state[d] = []*pjrt.Buffer{b}
	}
	for range 10 {
		require.NoError(t, x.Execute(ctx, state, state, pjrt.ExecuteOptions{Donate: []bool{true}}))
	}
	for _, row := range state {
		got := make([]float32, 8)
		require.NoError(t, row[0].ToHost(ctx, pjrt.Bytes(got)))
		assert.Equal(t, []float32{10, 10, 10, 10, 10, 10, 10, 10}, got)
		require.NoError(t, row[0].Close())
	}
}
