package pjrt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/errkind"
	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// invalidPrograms are programs for which the plugin returns an error. The tests of package worker
// have programs that abort the process.
var invalidPrograms = map[string]pjrt.Program{
	"garbage":         pjrt.Program{Code: []byte("\x00\x01\x02\xff garbage"), Trusted: true},
	"truncated":       pjrt.Program{Code: addOne(2).Code[:200], Trusted: true},
	"an empty module": pjrt.Program{Code: []byte("module {}"), Trusted: true},
	"no main": pjrt.Program{Code: []byte("module { func.func @f() { return } }"),
		Trusted: true},
	"two mains": pjrt.Program{Code: []byte("module { func.func @main() { return } func.func @main() { return } }"),
		Trusted: true},
	"an unknown operation": function("%x: tensor<4xf32>", "tensor<4xf32>",
		"%o = stablehlo.bogus %x : tensor<4xf32>\n return %o : tensor<4xf32>"),
	"an unknown dialect": function("%x: tensor<4xf32>", "tensor<4xf32>",
		"%o = \"foo.bar\"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"),
	"an unknown custom call": function("%x: tensor<4xf32>", "tensor<4xf32>",
		"%o = stablehlo.custom_call @nope(%x) : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"),
	"a wrong result type": function("%x: tensor<4xf32>", "tensor<5xf32>", "return %x : tensor<4xf32>"),
	"a dynamic dimension": function("%x: tensor<?xf32>", "tensor<?xf32>",
		"%o = stablehlo.add %x, %x : tensor<?xf32>\n return %o : tensor<?xf32>"),
	"an alias to no result": function("%x: tensor<4xf32> {tf.aliasing_output = 7 : i32}", "tensor<4xf32>",
		"return %x : tensor<4xf32>"),
	"two aliases to one result": function(
		"%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<4xf32> {tf.aliasing_output = 0 : i32}", "tensor<4xf32>",
		"return %x : tensor<4xf32>"),
	"an unknown mesh": pjrt.Program{Code: []byte(strings.ReplaceAll(string(addOne(2).Code), "<@mesh,",
		"<@nomesh,")), Trusted: true},
	"an unknown axis": pjrt.Program{Code: []byte(strings.ReplaceAll(string(addOne(2).Code), `{"d"}`,
		`{"e"}`)), Trusted: true},
	"a replica group out of range":  allReduce("[[0, 7]]", "1x2"),
	"a replica group with a double": allReduce("[[0, 0]]", "1x2"),
	"a replica group too small":     allReduce("[[0]]", "1x1"),
	"a replica group below zero":    allReduce("[[0, -1]]", "1x2"),
	"partition_id while partitioning": function("", "tensor<ui32>",
		"%o = stablehlo.partition_id : tensor<ui32>\n return %o : tensor<ui32>"),
}

func allReduce(groups, shape string) pjrt.Program {
	return function("%x: tensor<4xf32>", "tensor<4xf32>",
		`%o = "stablehlo.all_reduce"(%x) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
 %s = stablehlo.add %a, %b : tensor<f32>
 stablehlo.return %s : tensor<f32> }) {replica_groups = dense<`+groups+`> : tensor<`+shape+`xi64>,
	channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
	use_global_device_ids} : (tensor<4xf32>) -> tensor<4xf32>
 return %o : tensor<4xf32>`)
}

func TestInvalidProgramsReturnErrors(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
	for name, p := range invalidPrograms {
		t.Run(name, func(t *testing.T) {
			x, err := c.Compile(background, p, spmd(2))
			if err == nil {
				x.Close()
			}
			var pe *pjrt.Error
			require.ErrorAs(t, err, &pe)
			assert.NotContains(t, pe.Msg, "\n", "a summary is one line")
			assert.Equal(t, "compile", pe.Op)
		})
	}
}

func TestCompileRejectsUntrustedPrograms(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
	optimized, err := compile(t, c, addOne(1), pjrt.CompileOptions{}).Executable().OptimizedProgram()
	require.NoError(t, err)
	for name, p := range map[string]pjrt.Program{
		"text": {Code: addOne(2).Code}, "garbage": {Code: []byte("\x00\xff")},
		"bytecode": {Code: []byte("ML\xefR\x0d\x01\x02\x03\x04\xff\xff\xff\xff")},
		"a proto":  {Code: []byte{0x0a, 0}, Format: pjrt.FormatHLO}, "what was optimized": optimized,
	} {
		_, err := c.Compile(background, p, spmd(2))
		require.ErrorIs(t, err, pjrt.ErrUntrusted, name)
		assert.ErrorContains(t, err, "pjrt/worker", name)
		assert.Equal(t, errkind.PermissionDeniedError, errkind.KindOf(err), name)
		var ce *pjrt.CompileError
		require.ErrorAs(t, err, &ce, name)
		assert.Equal(t, "Program.Trusted", ce.Field)
	}
	for field, p := range map[string]pjrt.Program{"Program.Code": {Trusted: true},
		"Program.Format": {Code: []byte("x"), Format: "onnx", Trusted: true}} {
		_, err := c.Compile(background, p, spmd(2))
		var ce *pjrt.CompileError
		require.ErrorAs(t, err, &ce)
		assert.Equal(t, field, ce.Field)
	}
}
