package floor_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/floor"
)

func addOne(n int) pjrt.Program {
	return pjrt.Program{Code: fmt.Appendf(nil, `module {
  sdy.mesh @mesh = <["d"=%[1]d]>
  func.func public @main(%%x: tensor<%[1]dx8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>, tf.aliasing_output = 0 : i32}) -> (tensor<%[1]dx8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}, {}]>}) {
    %%c = stablehlo.constant dense<1.0> : tensor<%[1]dx8xf32>
    %%o = stablehlo.add %%x, %%c : tensor<%[1]dx8xf32>
    return %%o : tensor<%[1]dx8xf32>
  }
}`, n), Trusted: true}
}

func TestBothLoopsRunTheSameSteps(t *testing.T) {
	for _, n := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("%d devices", n), func(t *testing.T) {
			ctx := context.Background()
			c := plugintest.CPU(t, n)
			x, err := c.Compile(ctx, addOne(n), pjrt.CompileOptions{Partitions: n, SPMD: n > 1, Shardy: n > 1})
			require.NoError(t, err)
			defer x.Close()
			var state [][]*pjrt.Buffer
			for _, d := range x.AddressableDevices() {
				b, err := c.BufferFromHost(ctx, make([]byte, 32), pjrt.F32, []int{1, 8}, d)
				require.NoError(t, err)
				defer b.Close()
				state = append(state, []*pjrt.Buffer{b})
			}
			donate := pjrt.ExecuteOptions{Donate: []bool{true}}
			r, err := floor.Measure(ctx, x, state, func() error { return x.Execute(ctx, state, state, donate) }, floor.Options{Rounds: 40, Steps: 20})
			require.NoError(t, err)
			t.Logf("%d devices: %v", n, r)
			got := make([]float32, 8)
			require.NoError(t, state[n-1][0].ToHost(ctx, pjrt.Bytes(got)))
			assert.Equal(t, float32(2*40*20), got[7], "both loops count")
		})
	}
}
