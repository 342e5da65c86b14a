package pjrt_test

import (
	"encoding/hex"
	"maps"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

func TestCompileChecksOptions(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 4)
	for name, tc := range map[string]struct {
		o     pjrt.CompileOptions
		field string
	}{
		"more replicas than devices":   {pjrt.CompileOptions{Replicas: 5}, "Replicas"},
		"more partitions than devices": {pjrt.CompileOptions{Partitions: 5, SPMD: true}, "Replicas"},
		"the product too large":        {pjrt.CompileOptions{Replicas: 2, Partitions: 3, SPMD: true}, "Replicas"},
		"an overflowing product":       {pjrt.CompileOptions{Replicas: 1 << 40, Partitions: 1 << 40}, "Replicas"},
		"replicas below zero":          {pjrt.CompileOptions{Replicas: -1}, "Replicas"},
		"partitions below zero":        {pjrt.CompileOptions{Partitions: -1}, "Partitions"},
		"an unknown device":            {pjrt.CompileOptions{DeviceAssignment: [][]int{{4}}}, "DeviceAssignment"},
		"a device below zero":          {pjrt.CompileOptions{DeviceAssignment: [][]int{{-1}}}, "DeviceAssignment"},
		"a device twice": {pjrt.CompileOptions{Replicas: 2, DeviceAssignment: [][]int{{1}, {1}}},
			"DeviceAssignment"},
		"an assignment too short": {pjrt.CompileOptions{Replicas: 2, DeviceAssignment: [][]int{{1}}},
			"DeviceAssignment"},
		"an assignment too wide": {pjrt.CompileOptions{DeviceAssignment: [][]int{{0, 1}}}, "DeviceAssignment"},
		"a ragged assignment": {pjrt.CompileOptions{Replicas: 2, Partitions: 2,
			DeviceAssignment: [][]int{{0, 1}, {2}}}, "DeviceAssignment"},
		"an empty assignment":      {pjrt.CompileOptions{DeviceAssignment: [][]int{}}, "DeviceAssignment"},
		"a float32 override":       {pjrt.CompileOptions{Overrides: map[string]any{"x": float32(1)}}, "Overrides"},
		"a nil override":           {pjrt.CompileOptions{Overrides: map[string]any{"x": nil}}, "Overrides"},
		"an override without name": {pjrt.CompileOptions{Overrides: map[string]any{"": 1}}, "Overrides"},
		"a split count below zero": {pjrt.CompileOptions{
			Overrides: map[string]any{"xla_cpu_parallel_codegen_split_count": -1}}, "Overrides"},
		"the dump directory twice": {pjrt.CompileOptions{DumpDir: "/d",
			Overrides: map[string]any{"xla_dump_to": "/e"}}, "Overrides"},
		"a NUL in the dump directory": {pjrt.CompileOptions{DumpDir: "/d\x00"}, "DumpDir"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := c.Compile(background, two(), tc.o)
			var ce *pjrt.CompileError
			require.ErrorAs(t, err, &ce)
			assert.Equal(t, tc.field, ce.Field, "%v", err)
		})
	}
	for name, o := range map[string]map[string]any{"an unknown override": {"no_such_option": true},
		"an override of a wrong type": {"xla_backend_optimization_level": "x"}} {
		_, err := c.Compile(background, two(), pjrt.CompileOptions{Overrides: o})
		require.ErrorIs(t, err, pjrt.InvalidArgument, name)
	}
}

func TestEncodeCompileOptions(t *testing.T) {
	for name, tc := range map[string]struct {
		o    pjrt.CompileOptions
		want string
	}{
		// 3: build options {1: -1, 4: replicas, 5: partitions}
		"zero value": {pjrt.CompileOptions{}, "1a0f" + "08ffffffffffffffffff01" + "2001" + "2801"},
		// ... 6: spmd, 9: {1: 2, 2: 2, 3: {1: [0 2]}, 3: {1: [1 3]}}, 19: shardy
		"two by two": {pjrt.CompileOptions{Replicas: 2, Partitions: 2, SPMD: true, Shardy: true,
			DeviceAssignment: [][]int{{0, 1}, {2, 3}}},
			"1a26" + "08ffffffffffffffffff01" + "2002" + "2802" + "3001" + "4a10" + "0802" + "1002" + "1a040a020002" +
				"1a040a020103" + "980101"},
		// 7: {1: name, 2: {1 string, 2 bool, 3 int, 4 double}}, by name
		"overrides": {pjrt.CompileOptions{DumpDir: "/d", Overrides: map[string]any{"a": true, "b": 2, "c": 1.0}},
			"1a0f" + "08ffffffffffffffffff01" + "2001" + "2801" + "3a07" + "0a0161" + "12021001" + "3a07" + "0a0162" +
				"12021802" +
				"3a0e" + "0a0163" + "120921000000000000f03f" + "3a13" + "0a0b" +
				hex.EncodeToString([]byte("xla_dump_to")) + "1204" + "0a022f64"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := pjrt.EncodeOptions(tc.o, 4)
			require.NoError(t, err)
			assert.Equal(t, tc.want, hex.EncodeToString(got))
		})
	}
}

func TestMaximumPropagatesNaNByDefault(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	nan := float32(math.NaN())
	p := function("%x: tensor<2xf32>, %y: tensor<2xf32>", "tensor<2xf32>",
		"%o = stablehlo.maximum %x, %y : tensor<2xf32>\n return %o : tensor<2xf32>")
	for name, tc := range map[string]struct {
		overrides map[string]any
		want      bool
	}{
		"no overrides":      {nil, true},
		"another override":  {map[string]any{"xla_embed_ir_in_executable": false}, true},
		"asked to be fast":  {map[string]any{"xla_cpu_enable_fast_min_max": true}, false},
		"asked to be exact": {map[string]any{"xla_cpu_enable_fast_min_max": false}, true},
	} {
		t.Run(name, func(t *testing.T) {
			given := maps.Clone(tc.overrides)
			x := compile(t, c, p, pjrt.CompileOptions{Overrides: tc.overrides})
			defer x.Close()
			assert.Equal(t, given, tc.overrides, "the caller's map")
			l, r := put(t, c, []float32{nan, 1}, pjrt.F32, []int{2}, c.Devices()[0]),
				put(t, c, []float32{1, nan}, pjrt.F32, []int{2}, c.Devices()[0])
			defer l.Close()
			defer r.Close()
			out := rows(1, 1)
			require.NoError(t, x.Execute(background, [][]*pjrt.Buffer{{l, r}}, out, pjrt.ExecuteOptions{}))
			defer closeAll(out)
			got := get[float32](t, out[0][0], 2)
			assert.Equal(t, tc.want, got[0] != got[0] && got[1] != got[1], "%v", got)
		})
	}
}

// XNNPACK may sum the terms of a product in a different order than XLA.
func TestXNNPACKIsDisabledByDefault(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 1)
	p := pjrt.Program{Trusted: true,
		Code: []byte(
			`module @m { func.func public @main(%x: tensor<64x3072xf32>, %w: tensor<3072x32xf32> {tf.aliasing_output = 1 : i32}) -> (tensor<f32>, tensor<3072x32xf32>) {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<64x3072xf32>,
	tensor<3072x32xf32>) -> tensor<64x32xf32>
  %t = stablehlo.tanh %y : tensor<64x32xf32>
  %g = stablehlo.dot_general %x, %t, contracting_dims = [0] x [0] : (tensor<64x3072xf32>,
	tensor<64x32xf32>) -> tensor<3072x32xf32>
  %v = stablehlo.subtract %w, %g : tensor<3072x32xf32>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %l = stablehlo.reduce(%t init: %z) applies stablehlo.add across dimensions = [0, 1] : (tensor<64x32xf32>,
	tensor<f32>) -> tensor<f32>
  return %l, %v : tensor<f32>, tensor<3072x32xf32> } }`)}
	numbers := func(count int, f func(float64) float64) []float32 {
		all := make([]float32, count)
		for i := range all {
			all[i] = float32(f(float64(i)))
		}
		return all
	}
	losses := func(overrides map[string]any) (all []float32) {
		program := compile(t, c, p, pjrt.CompileOptions{Overrides: overrides})
		defer program.Close()
		x := put(t, c, numbers(64*3072, func(i float64) float64 { return math.Sin(i) / 100 }), pjrt.F32,
			[]int{64, 3072}, c.Devices()[0])
		defer x.Close()
		w := put(t, c, numbers(3072*32, math.Cos), pjrt.F32, []int{3072, 32}, c.Devices()[0])
		for range 3 {
			out := rows(1, 2)
			require.NoError(t, program.Execute(background, [][]*pjrt.Buffer{{x, w}}, out, pjrt.ExecuteOptions{}))
			all = append(all, get[float32](t, out[0][0], 1)[0])
			require.NoError(t, out[0][0].Close())
			require.NoError(t, w.Close())
			w = out[0][1]
		}
		require.NoError(t, w.Close())
		return all
	}
	exact := losses(map[string]any{"xla_cpu_use_xnnpack": false})
	assert.Equal(t, exact, losses(nil))
	assert.Equal(t, exact, losses(map[string]any{"xla_embed_ir_in_executable": false}))
	// The results are equal on processors without XNNPACK kernels, so the options are also compared.
	for without, o := range map[bool]map[string]any{true: nil, false: {"xla_cpu_use_xnnpack": true}} {
		dir := t.TempDir()
		compile(t, c, p, pjrt.CompileOptions{DumpDir: dir, Overrides: o})
		files := glob(t, dir+"/*debug_options")
		require.Len(t, files, 1)
		options, err := os.ReadFile(files[0])
		require.NoError(t, err)
		assert.Equal(t, without, strings.Contains(string(options), "xla_cpu_use_xnnpack: false"), "%s", options)
	}
}

func TestDumpDirContainsProgram(t *testing.T) {
	c := plugintest.CPU(t, 1)
	dir := t.TempDir()
	compile(t, c, two(), pjrt.CompileOptions{DumpDir: dir, Overrides: map[string]any{"xla_dump_hlo_as_text": true}})
	assert.NotEmpty(t, glob(t, dir+"/*"))
}
