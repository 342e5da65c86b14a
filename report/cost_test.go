package report_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/report"
	"github.com/tpustrategy/tpustrategy/tpu/system"
)

// layers is a program of two partitions with n layers, each a product and a sum over both, in a
// loop over stacked weights or in sequence.
func layers(n int, looped bool) []byte {
	const layer = `
      %%m%[1]d = stablehlo.reshape %%s%[1]d : (tensor<1x512x512xf32>) -> tensor<512x512xf32>
      %%d%[1]d = stablehlo.dot_general %[2]s, %%m%[1]d, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) -> tensor<512x512xf32>
      %%r%[1]d = "stablehlo.all_reduce"(%%d%[1]d) ({
        ^sum(%%u: tensor<f32>, %%v: tensor<f32>):
          %%q = stablehlo.add %%u, %%v : tensor<f32>
          stablehlo.return %%q : tensor<f32>
      }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_handle = #stablehlo.channel_handle<handle = %[3]d, type = 1>, use_global_device_ids} : (tensor<512x512xf32>) -> tensor<512x512xf32>
      %%y%[1]d = stablehlo.tanh %%r%[1]d : tensor<512x512xf32>
`
	var b strings.Builder
	fmt.Fprintf(&b, `module @layers attributes {mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 2 : i32} {
  sdy.mesh @mesh = <["replica"=2]>
  func.func @main(%%x: tensor<512x512xf32>, %%w: tensor<%[1]dx512x512xf32>) -> tensor<512x512xf32> {
    %%o = sdy.manual_computation(%%x, %%w) in_shardings=[<@mesh, [{}, {}]>, <@mesh, [{}, {}, {}]>] out_shardings=[<@mesh, [{}, {}]>] manual_axes={"replica"} (%%a: tensor<512x512xf32>, %%b: tensor<%[1]dx512x512xf32>) {
      %%zero = stablehlo.constant dense<0> : tensor<i32>
      %%one = stablehlo.constant dense<1> : tensor<i32>
      %%n = stablehlo.constant dense<%[1]d> : tensor<i32>
`, n)
	last := "%a"
	if looped {
		last = "%loop#1"
		fmt.Fprintf(&b,
			`      %%loop:3 = stablehlo.while(%%i = %%zero, %%y = %%a, %%ws = %%b) : tensor<i32>, tensor<512x512xf32>, tensor<%[1]dx512x512xf32>
      cond {
        %%p = stablehlo.compare LT, %%i, %%n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %%p : tensor<i1>
      } do {
      %%s0 = stablehlo.dynamic_slice %%ws, %%i, %%zero, %%zero, sizes = [1, 512, 512] : (tensor<%[1]dx512x512xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x512x512xf32>
`, n)
		fmt.Fprintf(&b, layer, 0, "%y", 1)
		fmt.Fprintf(&b, `      %%next = stablehlo.add %%i, %%one : tensor<i32>
        stablehlo.return %%next, %%y0, %%ws : tensor<i32>, tensor<512x512xf32>, tensor<%dx512x512xf32>
      }
`, n)
	} else {
		for k := range n {
			fmt.Fprintf(&b, "      %%s%[1]d = stablehlo.slice %%b [%[1]d:%[2]d, 0:512, 0:512] : (tensor<%[3]dx512x512xf32>) "+
				"-> tensor<1x512x512xf32>\n", k, k+1, n)
			fmt.Fprintf(&b, layer, k, last, k+1)
			last = fmt.Sprintf("%%y%d", k)
		}
	}
	fmt.Fprintf(&b, `      sdy.return %s : tensor<512x512xf32>
    } : (tensor<512x512xf32>, tensor<%dx512x512xf32>) -> tensor<512x512xf32>
    return %%o : tensor<512x512xf32>
  }
}
`, last, n)
	return []byte(b.String())
}

// The iterations of a loop count like the same layers in sequence.
func TestALoopReportsWhatItsRoundsDo(t *testing.T) {
	options := pjrt.CompileOptions{Partitions: 2, DeviceAssignment: [][]int{{0, 1}}, SPMD: true, Shardy: true}
	const n = 24
	check := func(t *testing.T, compile func(text []byte) (*pjrt.Executable, report.Target)) (looped *report.Report) {
		var reports [2]*report.Report
		for i, loop := range []bool{true, false} {
			text := layers(n, loop)
			program, target := compile(text)
			r, err := report.New(report.Input{Step: "layers", Target: target, Replicas: 2, Program: program, Text: text})
			require.NoError(t, err)
			reports[i] = r
		}
		looped, unrolled := reports[0], reports[1]
		assert.Equal(t, n*2.0*512*512*512, looped.Cost.ModelFLOPs)
		assert.Equal(t, unrolled.Cost.ModelFLOPs, looped.Cost.ModelFLOPs)
		assert.InEpsilon(t, unrolled.Cost.FLOPs, looped.Cost.FLOPs, 0.02)
		require.Len(t, looped.Collectives, 1)
		assert.Equal(t, n, looped.Collectives[0].Count)
		assert.False(t, looped.Collectives[0].InLoop)
		assert.EqualValues(t, n*512*512*4, looped.Collectives[0].Bytes)
		inLoop, all := looped.CollectiveBytes("replica")
		bytesUnrolled, allUnrolled := unrolled.CollectiveBytes("replica")
		assert.Equal(t, []int64{bytesUnrolled, allUnrolled}, []int64{inLoop, all})
		assert.Greater(t, looped.Cost.BytesAccessed, 0.5*unrolled.Cost.BytesAccessed)
		assert.Less(t, looped.Cost.BytesAccessed, 2*unrolled.Cost.BytesAccessed)
		for _, note := range looped.Notes {
			assert.NotContains(t, note, "loop", "every loop's rounds are known")
		}
		return looped
	}
	t.Run("cpu", func(t *testing.T) {
		client := plugintest.CPU(t, 2)
		r := check(t, func(text []byte) (*pjrt.Executable, report.Target) {
			loaded, err := client.Compile(t.Context(), pjrt.Program{Code: text, Trusted: true}, options)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, loaded.Close()) })
			return loaded.Executable(), report.Target{Name: "cpu"}
		})
		assert.Zero(t, r.Cost.RooflineSeconds)
		assert.Contains(t, strings.Join(r.Notes, "\n"), "no time is estimated")
	})
	t.Run("tpu", func(t *testing.T) {
		slice, err := system.Describe(t.Context(), "v5e:2x2", system.DescribeOptions{Plugin: plugintest.Libtpu(t)})
		require.NoError(t, err)
		defer slice.Close()
		r := check(t, func(text []byte) (*pjrt.Executable, report.Target) {
			program, err := slice.Compile(t.Context(), pjrt.Program{Code: text, Trusted: true}, options)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, program.Close()) })
			return program, report.TargetOf(slice.Info())
		})
		// The compiler's own sum is negative here: -1 for the all-reduce, and one iteration of the
		// loop.
		assert.Greater(t, r.Cost.RooflineSeconds, r.Cost.FLOPs/197e12)
		assert.Less(t, r.Cost.RooflineSeconds, 0.01)
		assert.Equal(t, n, r.Cost.Untimed)
		assert.GreaterOrEqual(t, r.Cost.RooflineSeconds, r.Cost.FloorSeconds)
		assert.Positive(t, r.Cost.Utilization)
		assert.Less(t, r.Cost.Utilization, 1.0)
		var text, page bytes.Buffer
		require.NoError(t, r.WriteText(&text))
		require.NoError(t, r.WriteHTML(&page))
		for _, shown := range []string{text.String(), page.String()} {
			assert.Contains(t, shown, "roofline")
			assert.Contains(t, shown, "without 24 operations of unknown time")
			assert.NotContains(t, shown, "time of a step")
		}
	})
}
