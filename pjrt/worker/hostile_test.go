package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/worker"
)

// function returns a module with a main function.
func function(in, out, body string) pjrt.Program {
	return pjrt.Program{Code: fmt.Appendf(nil, "module @m {\n func.func public @main(%s) -> (%s) {\n%s\n}\n}", in, out,
		body)}
}

const f4 = "tensor<4xf32>"

// call returns a program with one argument that returns the first result of a custom call.
func call(in, text string, outs ...string) pjrt.Program {
	body := fmt.Sprintf("%%o = stablehlo.custom_call %s : (%s) -> %s\n return %%o : %[3]s", text, in, outs[0])
	if len(outs) > 1 {
		body = fmt.Sprintf("%%o:%d = stablehlo.custom_call %s : (%s) -> (%s)\n return %%o#0 : %s", len(outs), text, in,
			strings.Join(outs, ", "), outs[0])
	}
	return function("%x: "+in, outs[0], body)
}

// withAttributes returns an identity program in a module with attributes.
func withAttributes(attributes string) pjrt.Program {
	return pjrt.Program{Code: fmt.Appendf(nil,
		"module @m attributes {%s} {\n func.func public @main(%%x: %s) -> %[2]s { return %%x : %[2]s }\n}", attributes,
		f4)}
}

func pad(low, high, interior string) pjrt.Program {
	return function("%x: "+f4, f4, fmt.Sprintf("%%c = stablehlo.constant dense<0.0> : tensor<f32>\n%%o = stablehlo.pad "+
		"%%x, %%c, low = [%s], high = [%s], interior = [%s] : (%s, tensor<f32>) -> %[4]s\n return %%o : %[4]s", low, high,
		interior, f4))
}

func reduceWindow(low, high string) pjrt.Program {
	return function("%x: "+f4+", %z: tensor<f32>", f4,
		fmt.Sprintf(`%%o = "stablehlo.reduce_window"(%%x, %%z) ({ ^bb0(%%a: tensor<f32>, %%b: tensor<f32>):
 %%s = stablehlo.add %%a, %%b : tensor<f32>
 stablehlo.return %%s : tensor<f32> }) {window_dimensions = array<i64: 1>,
	padding = dense<[[%s, %s]]> : tensor<1x2xi64>} : (%s, tensor<f32>) -> %[3]s
 return %%o : %[3]s`, low, high, f4))
}

// chain returns a program with n nested calls.
func chain(n int) pjrt.Program {
	var b strings.Builder
	b.WriteString("module {\n")
	for i := range n + 1 {
		head, body := fmt.Sprintf("private @f%d", i),
			fmt.Sprintf("%%o = call @f%d(%%x) : (tensor<f32>) -> tensor<f32>", i+1)
		if i == 0 {
			head = "public @main"
		}
		if i == n {
			body = "%o = stablehlo.add %x, %x : tensor<f32>"
		}
		fmt.Fprintf(&b, "func.func %s(%%x: tensor<f32>) -> tensor<f32> {\n %s\n return %%o : tensor<f32>\n}\n", head,
			body)
	}
	b.WriteString("}")
	return pjrt.Program{Code: []byte(b.String())}
}

// manual returns a program that converts a full shape to shards and back with GSPMD.
func manual(in, shard, out, shape string) pjrt.Program {
	return function("%x: "+f4, f4,
		fmt.Sprintf(`%%0 = stablehlo.custom_call @Sharding(%%x) {mhlo.sharding = "%s"} : (tensor<4xf32>) -> tensor<4xf32>
%%1 = stablehlo.custom_call @SPMDFullToShardShape(%%0) {mhlo.sharding = "%s"} : (tensor<4xf32>) -> tensor<%sxf32>
%%2 = stablehlo.custom_call @Sharding(%%1) {mhlo.sharding = "%[2]s"} : (tensor<%[3]sxf32>) -> tensor<%[3]sxf32>
%%3 = stablehlo.custom_call @SPMDShardToFullShape(%%2) {mhlo.sharding = "%[4]s"} : (tensor<%[3]sxf32>) -> tensor<4xf32>
return %%3 : tensor<4xf32>`, in, shard, shape, out))
}

// sharding returns a sum whose parameter has a GSPMD sharding.
func sharding(text string) pjrt.Program {
	return function(fmt.Sprintf("%%x: %s {mhlo.sharding = %q}", f4, text), f4,
		"%o = stablehlo.add %x, %x : "+f4+"\n return %o : "+f4)
}

// divided returns a program that divides a constant by z.
func divided(z string) pjrt.Program {
	return function("%a: tensor<i32>", "tensor<i32>",
		"%x = stablehlo.constant dense<1> : tensor<i32>\n"+z+
			"\n%o = stablehlo.divide %x, %z : tensor<i32>\n return %o : tensor<i32>")
}

const (
	bodyless = "func.func private @f(tensor<4xf32>) -> tensor<4xf32>"
	callsF   = "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> { %o = call @f(%x) : (tensor<4xf32>) -> " +
		"tensor<4xf32>\n return %o : tensor<4xf32> }"
	maxInt     = "9223372036854775807"
	halves     = "{devices=[2]<=[2]}"
	tokenType  = "!stablehlo.token"
	token      = "%t = stablehlo.create_token : !stablehlo.token\n"
	dynamicPad = "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%l = stablehlo.constant dense<" + maxInt +
		"> : tensor<1xi64>\n%h = stablehlo.constant dense<-" + maxInt + "> : tensor<1xi64>\n%i = stablehlo.constant " +
		"dense<0> : tensor<1xi64>\n%o = stablehlo.dynamic_pad %x, %c, %l, %h, %i : (tensor<4xf32>, tensor<f32>, " +
		"tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<4xf32>\n return %o : tensor<4xf32>"
)

// sharded returns a Shardy module for two devices with a custom call.
func sharded(call string) pjrt.Program {
	return pjrt.Program{Code: []byte(`module { sdy.mesh @mesh = <["d"=2]>
 func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) -> tensor<4xf32> {
  %o = ` + call + ` : (tensor<4xf32>) -> tensor<4xf32>
  return %o : tensor<4xf32> } }`)}
}

// crashingPrograms are programs that abort the process of the compiler, if they are compiled with
// Shardy for two devices.
var crashingPrograms = map[string]pjrt.Program{
	"a function without body": pjrt.Program{Code: []byte("module {\n" + bodyless + "\n" + callsF +
		"\n}")},
	"one that nobody calls": pjrt.Program{Code: []byte(
		"module {\n func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }\n" + bodyless +
			" // {\n}")},
	"a main without body": pjrt.Program{Code: []byte(
		"module { func.func private @main(tensor<4xf32>) -> tensor<4xf32> }")},
	"an alias of the module": withAttributes("mhlo.input_output_alias = [{alias={kind=0}}]"),
	"automatic partitioning": withAttributes("mhlo.use_auto_spmd_partitioning = true"),
	"exported meshes":        withAttributes(`mhlo.frontend_attributes = {xla.sdy.meshes = "garbage"}`),
	"an exported sharding": function("%x: "+f4+
		` {mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{}]>]>"}}`, f4, "return %x : "+
		f4),
	"exported results":      withAttributes(`mhlo.frontend_attributes = {xla.sdy.tuple_results_shardings = "x"}`),
	"@Sharding without one": call(f4, "@Sharding(%x) {api_version = 4 : i32}", f4),
	"@Sharding with one elsewhere": call(f4,
		`@Sharding(%x) {api_version = 4 : i32, mhlo.frontend_attributes = {mhlo.sharding = "{manual}"}}`, f4),
	"full to shard without sharding": call(f4, "@SPMDFullToShardShape(%x)", f4),
	"shard to full without sharding": call(f4, "@SPMDShardToFullShape(%x)", f4),
	"full to shard of no @Sharding": call(f4, `@SPMDFullToShardShape(%x) {mhlo.sharding = "{manual}"}`,
		"tensor<2xf32>"),
	"full to shard that is not manual": manual(halves, halves, halves, "2"),
	"full to shard of another size":    manual("{replicated}", "{manual}", halves, "2"),
	"shard to full of another size":    manual(halves, "{manual}", "{replicated}", "2"),
	"@mhlo.topk without attributes":    call(f4, "@mhlo.topk(%x)", "tensor<2xf32>", "tensor<2xi32>"),
	"@mhlo.topk with a text for k": call(f4, `@mhlo.topk(%x) {mhlo.attributes = {k = "x", largest = true}}`,
		"tensor<2xf32>", "tensor<2xi32>"),
	"@mhlo.erf without attributes":         call(f4, "@mhlo.erf(%x)", f4),
	"@mhlo.erf with a text for attributes": call(f4, `@mhlo.erf(%x) {mhlo.attributes = "x"}`, f4),
	"@mhlo.erf of another version": call(f4, "@mhlo.erf(%x) {api_version = 4 : i32, mhlo.attributes = {}}",
		f4),
	"@mhlo.scan":                     call(f4, "@mhlo.scan(%x) {mhlo.attributes = {}}", f4),
	"@Eigh of a vector":              call(f4, "@Eigh(%x)", f4),
	"@Eigh of a vector, two results": call(f4, "@Eigh(%x)", f4, f4),
	"@Qr with one result":            call("tensor<4x4xf32>", "@Qr(%x)", "tensor<4x4xf32>"),
	"reflectors without scales": call("tensor<4x4xf32>", "@ProductOfElementaryHouseholderReflectors(%x)",
		"tensor<4x4xf32>"),
	"@mhlo.topk with a fraction for k": call(f4,
		`@mhlo.topk(%x) {mhlo.attributes = {k = 2.0 : f32, largest = true}}`, "tensor<2xf32>", "tensor<2xi32>"),
	"@mhlo.erf with a side effect": call(f4, "@mhlo.erf(%x) {has_side_effect = true, mhlo.attributes = {}}",
		f4),
	"@mhlo.erf with a configuration": call(f4, `@mhlo.erf(%x) {backend_config = "x", mhlo.attributes = {}}`, f4),
	"@Eigh of another shape": call("tensor<4x4xf32>", `@Eigh(%x) {backend_config = "1,1,100,1e-6"}`,
		"tensor<3xf32>", "tensor<7xf32>"),
	"reflectors with one scale": function("%x: tensor<4x4xf32>, %s: "+"tensor<f32>", "tensor<4x4xf32>",
		"%o = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%x, %s) : (tensor<4x4xf32>, tensor<f32>) -> "+
			"tensor<4x4xf32>\n return %o : tensor<4x4xf32>"),
	"@TopK with one result":             call(f4, "@TopK(%x)", f4),
	"@TopK with a tuple of one":         call(f4, "@TopK(%x)", "tuple<tensor<2xf32>>"),
	"@SliceToDynamic":                   call(f4, "@SliceToDynamic(%x)", f4),
	"@__onednn$matmul":                  call(f4, "@__onednn$matmul(%x)", f4),
	"an exported change of shape":       call(f4, "@xla.sdy.GlobalToLocalShape(%x)", f4),
	"an exported change of shape, back": call(f4, "@xla.sdy.LocalToGlobalShape(%x)", f4),
	"a pad beyond memory":               pad(maxInt, "-"+maxInt, "0"),
	"a pad below memory":                pad("-"+maxInt, maxInt, "0"),
	"a pad just too large":              pad("2305843009213693951", "-2305843009213693951", "0"),
	"a pad between elements":            pad("0", "-9223372036854775803", "3074457345618258601"),
	"a pad of two dimensions": function("%x: tensor<4x4xf32>", "tensor<4x4xf32>",
		"%c = stablehlo.constant dense<0.0> : tensor<f32>\n%o = stablehlo.pad %x, %c, low = [1099511627776, "+
			"1099511627776], high = [-1099511627776, -1099511627776], interior = [0, 0] : (tensor<4x4xf32>, tensor<f32>) -> "+
			"tensor<4x4xf32>\n return %o : tensor<4x4xf32>"),
	"a dynamic pad of constants":            function("%x: "+f4, f4, dynamicPad),
	"a window padded beyond memory":         reduceWindow(maxInt, "-"+maxInt),
	"a chain of calls that ends the stack":  chain(2000),
	"a sharding of more devices than tiles": sharding("{devices=[2]0,1,2,3}"),
	"a sharding of no tiles":                sharding("{devices=[0]<=[0]}"),
	"more layouts than results": withAttributes(
		"mhlo.xla_entry_computation_result_layout = [dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>]"),
	"a constant divided by zero": divided("%z = stablehlo.constant dense<0> : tensor<i32>"),
	"one by a list with a zero": function("", "tensor<2xi32>", "%x = stablehlo.constant dense<1> : "+
		"tensor<2xi32>\n%z = stablehlo.constant dense<[1, 0]> : tensor<2xi32>\n%o = \"stablehlo.remainder\"(%x, %z) : "+
		"(tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>\n return %o : tensor<2xi32>"),
	"@Eigh of a token": call(tokenType, "@Eigh(%x)", tokenType, tokenType),
	"@Qr of a tuple":   call("tuple<"+f4+">", "@Qr(%x)", "tuple<"+f4+">", f4),
	"reflectors of a token": function("%x: "+tokenType+", %s: tensor<f32>", tokenType,
		"%o = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%x, %s) : (!stablehlo.token, tensor<f32>) "+
			"-> !stablehlo.token\n return %o : !stablehlo.token"),
	"tiles of a token": function("%x: "+tokenType+` {mhlo.sharding = "`+halves+`"}, %y: `+f4, f4,
		"return %y : "+f4),
	"tiles of what is changed": function("%x: "+tokenType, tokenType,
		"%o = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = \""+halves+
			"\"} : (!stablehlo.token) -> !stablehlo.token\n return %o : !stablehlo.token"),
	"an array of indices": function("%x: "+f4+", %y: tensor<f32>", f4,
		"%o = chlo.broadcast_add %x, %y {broadcast_dimensions = array<index>} : ("+f4+", tensor<f32>) -> "+f4+
			"\n return %o : "+f4),
	"tiles of a dynamic size": function("%x: tensor<?xf32> {mhlo.sharding = \""+halves+"\"}",
		"tensor<?xf32>", "return %x : tensor<?xf32>"),
	"@mhlo.topk with another's attribute": call(f4,
		"@mhlo.topk(%x) {mhlo.attributes = {comparison_direction = #stablehlo<comparison_direction EQ>, largest = true}}",
		"tensor<2xf32>", "tensor<2xi32>"),
	"dimensions beyond memory": function("%x: tensor<99999999999x99999999999xf32>",
		"tensor<99999999999x99999999999xf32>", "return %x : tensor<99999999999x99999999999xf32>"),
	"lists nested deep": pjrt.Program{Code: []byte("module attributes {a = " +
		strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5) + "} {}")},
	"modules nested deep": pjrt.Program{Code: []byte(strings.Repeat("module {", 1e5) +
		strings.Repeat("}", 1e5))},
	"types nested deep": function("%x: "+strings.Repeat("tuple<",
		1e5)+"tensor<f32>"+strings.Repeat(">", 1e5), "tensor<f32>", ""),
	"a main that calls itself": function("%x: tensor<f32>", "tensor<f32>",
		"%o = func.call @main(%x) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32>"),
	"functions that call in a circle": pjrt.Program{Code: []byte("module {\nfunc.func public @main(%x: tensor<f32>) -> " +
		"tensor<f32> { %o = func.call @a(%x) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> }\nfunc.func " +
		"private @a(%x: tensor<f32>) -> tensor<f32> { %o = call @b(%x) : (tensor<f32>) -> tensor<f32>\n return %o : " +
		"tensor<f32> }\nfunc.func private @b(%x: tensor<f32>) -> tensor<f32> { %o = \"func.call\"(%x) {callee = @a} : " +
		"(tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> }\n}")},
	"Shardy and full to shard": sharded(
		`stablehlo.custom_call @SPMDFullToShardShape(%x) {mhlo.sharding = "{manual}"}`),
	"Shardy and shard to full": sharded(
		`stablehlo.custom_call @SPMDShardToFullShape(%x) {mhlo.sharding = "{devices=[2]<=[2]}"}`),
}

// TestCrashingProgramsReturnErrors checks that untrusted programs are not compiled in this process,
// and that a crash of a worker is an error. A few workers hang, because they crash in several
// threads at once.
func TestCrashingProgramsReturnErrors(t *testing.T) {
	client := plugintest.CPU(t, 2)
	c := newCompiler(t, worker.Options{Timeout: 20 * time.Second})
	options := pjrt.CompileOptions{Partitions: 2, SPMD: true, Shardy: true, DeviceAssignment: [][]int{{0, 1}}}
	var died atomic.Int64
	t.Run("programs", func(t *testing.T) {
		for name, p := range crashingPrograms {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				_, err := client.Compile(context.Background(), p, options)
				require.ErrorIs(t, err, pjrt.ErrUntrusted)
				x, err := c.Compile(context.Background(), client, p, options)
				var ended *worker.Error
				switch {
				case errors.As(err, &ended):
					died.Add(1)
					if ended.Reason != worker.TimedOut && !sanitized {
						assert.Contains(t, ended.State, "signal: SIG")
					}
				case err != nil:
					require.ErrorAs(t, err, new(*pjrt.Error))
				default: // the out-of-bounds read had no effect
					require.NoError(t, x.Close())
				}
			})
		}
	})
	assert.GreaterOrEqual(t, died.Load(), int64(len(crashingPrograms)-5), "nearly all programs abort the process")
}
