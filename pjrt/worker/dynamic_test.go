package worker_test

import (
	"context"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

// dynamicPrograms are programs whose main function has a dynamic shape after compilation.
var dynamicPrograms = map[string]pjrt.Program{
	"bounds of an argument": function("%x: tensor<?xf32, #stablehlo.bounds<8>>", "tensor<?xf32, #stablehlo.bounds<8>>",
		"return %x : tensor<?xf32, #stablehlo.bounds<8>>"),
	"bounds as an alias": {Code: []byte(`#b = #stablehlo.bounds<8, ?>
module { func.func public @main(%x: tensor<?x4xf32, #b>) -> tensor<?x4xf32, #b> { return %x : tensor<?x4xf32, #b> } }`)},
	"type extensions": function("%x: tensor<?xf32, #stablehlo.type_extensions<bounds = [8]>>",
		"tensor<?xf32, #stablehlo.type_extensions<bounds = [8]>>",
		"return %x : tensor<?xf32, #stablehlo.type_extensions<bounds = [8]>>"),
	"no bounds": function("%x: tensor<?xf32>", "tensor<?xf32>", "return %x : tensor<?xf32>"),
	"a set dimension size": function("%x: tensor<8xf32>, %n: tensor<i32>", "tensor<?xf32, #stablehlo.bounds<8>>",
		`%o = "stablehlo.set_dimension_size"(%x, %n) {dimension = 0 : i64} : (tensor<8xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<8>>
 return %o : tensor<?xf32, #stablehlo.bounds<8>>`),
	"a sum of a set dimension size": function("%x: tensor<8x4xf32>, %n: tensor<i32>",
		"tensor<?x4xf32, #stablehlo.bounds<8, ?>>",
		`%y = "stablehlo.set_dimension_size"(%x, %n) {dimension = 0 : i64} : (tensor<8x4xf32>, tensor<i32>) -> tensor<?x4xf32, #stablehlo.bounds<8, ?>>
 %o = stablehlo.add %y, %y : tensor<?x4xf32, #stablehlo.bounds<8, ?>>
 return %o : tensor<?x4xf32, #stablehlo.bounds<8, ?>>`),
	"one of several results": function("%x: tensor<8xf32>, %n: tensor<i32>",
		"tensor<8xf32>, tensor<?xf32, #stablehlo.bounds<8>>",
		`%o = "stablehlo.set_dimension_size"(%x, %n) {dimension = 0 : i64} : (tensor<8xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<8>>
 return %x, %o : tensor<8xf32>, tensor<?xf32, #stablehlo.bounds<8>>`),
	"a computed shape": function("%x: tensor<8xf32>, %s: tensor<2xi32>", "tensor<?x?xf32>",
		"%o = stablehlo.dynamic_reshape %x, %s : (tensor<8xf32>, tensor<2xi32>) -> tensor<?x?xf32>\n return %o : tensor<?x?xf32>"),
}

// Executing a program whose main function has a dynamic shape would abort this process.
func TestDynamicShapesReturnErrors(t *testing.T) {
	client := plugintest.CPU(t, 1)
	c := newCompiler(t, worker.Options{Timeout: 60 * time.Second})
	for name, p := range dynamicPrograms {
		t.Run(name, func(t *testing.T) {
			x, err := c.Compile(context.Background(), client, p, pjrt.CompileOptions{})
			if !assert.Error(t, err) {
				x.Close()
			}
			t.Log(err)
		})
	}
}

func TestDynamicSizesInsideProgram(t *testing.T) {
	ctx := context.Background()
	client := plugintest.CPU(t, 1)
	c := newCompiler(t, worker.Options{Timeout: 60 * time.Second})
	p := function("%x: tensor<8xf32>, %n: tensor<i32>", "tensor<f32>", `%y = "stablehlo.set_dimension_size"(%x, %n) {dimension = 0 : i64} : (tensor<8xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<8>>
 %z = stablehlo.constant dense<0.0> : tensor<f32>
 %o = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0] : (tensor<?xf32,
	#stablehlo.bounds<8>>, tensor<f32>) -> tensor<f32>
 return %o : tensor<f32>`)
	x, err := c.Compile(ctx, client, p, pjrt.CompileOptions{})
	require.NoError(t, err)
	defer x.Close()
	device := x.AddressableDevices()[0]
	ones := make([]byte, 0, 32)
	for range 8 {
		ones = binary.LittleEndian.AppendUint32(ones, math.Float32bits(1))
	}
	values, err := client.BufferFromHost(ctx, ones, pjrt.F32, []int{8}, device)
	require.NoError(t, err)
	defer values.Close()
	size, err := client.BufferFromHost(ctx, []byte{3, 0, 0, 0}, pjrt.S32, nil, device)
	require.NoError(t, err)
	defer size.Close()
	results := [][]*pjrt.Buffer{make([]*pjrt.Buffer, 1)}
	require.NoError(t, x.Execute(ctx, [][]*pjrt.Buffer{{values, size}}, results, pjrt.ExecuteOptions{}))
	defer results[0][0].Close()
	got := make([]byte, 4)
	require.NoError(t, results[0][0].ToHost(ctx, got))
	assert.Equal(t, float32(3), math.Float32frombits(binary.LittleEndian.Uint32(got)))
}
