package pjrt_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

// hostile are programs that no compiler should take, with who has to say so: us, before the plugin
// (a CompileError), or the plugin (an Error).
var hostile = map[string]struct {
	p    pjrt.Program
	ours bool
}{
	"empty":                           {pjrt.Program{}, true},
	"an unknown format":               {pjrt.Program{Code: []byte("x"), Format: "onnx"}, true},
	"garbage":                         {pjrt.Program{Code: []byte("\x00\x01\x02\xff garbage")}, false},
	"truncated":                       {pjrt.Program{Code: addOne(2).Code[:200]}, false},
	"bytecode magic alone":            {pjrt.Program{Code: []byte("ML\xefR")}, true},
	"bytecode with a huge section":    {pjrt.Program{Code: []byte("ML\xefR\x0d\x01\x02\x03\x04\xff\xff\xff\xff")}, true},
	"an empty module":                 {pjrt.Program{Code: []byte("module {}")}, false},
	"no main":                         {pjrt.Program{Code: []byte("module { func.func @f() { return } }")}, false},
	"two mains":                       {pjrt.Program{Code: []byte("module { func.func @main() { return } func.func @main() { return } }")}, false},
	"an unknown operation":            {function("%x: tensor<4xf32>", "tensor<4xf32>", "%o = stablehlo.bogus %x : tensor<4xf32>\n return %o : tensor<4xf32>"), false},
	"an unknown dialect":              {function("%x: tensor<4xf32>", "tensor<4xf32>", "%o = \"foo.bar\"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"), false},
	"an unknown custom call":          {function("%x: tensor<4xf32>", "tensor<4xf32>", "%o = stablehlo.custom_call @nope(%x) : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"), false},
	"a wrong result type":             {function("%x: tensor<4xf32>", "tensor<5xf32>", "return %x : tensor<4xf32>"), false},
	"a dynamic dimension":             {function("%x: tensor<?xf32>", "tensor<?xf32>", "%o = stablehlo.add %x, %x : tensor<?xf32>\n return %o : tensor<?xf32>"), false},
	"an alias to no result":           {function("%x: tensor<4xf32> {tf.aliasing_output = 7 : i32}", "tensor<4xf32>", "return %x : tensor<4xf32>"), false},
	"two aliases to one result":       {function("%x: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %y: tensor<4xf32> {tf.aliasing_output = 0 : i32}", "tensor<4xf32>", "return %x : tensor<4xf32>"), false},
	"an unknown mesh":                 {pjrt.Program{Code: []byte(strings.ReplaceAll(string(addOne(2).Code), "<@mesh,", "<@nomesh,"))}, false},
	"an unknown axis":                 {pjrt.Program{Code: []byte(strings.ReplaceAll(string(addOne(2).Code), `{"d"}`, `{"e"}`))}, false},
	"a garbage HLO proto":             {pjrt.Program{Code: []byte("garbage\xff"), Format: pjrt.FormatHLO}, true},
	"an empty HLO module":             {pjrt.Program{Code: []byte{0x0a, 0}, Format: pjrt.FormatHLO}, true},
	"a format of other plugins":       {pjrt.Program{Code: []byte("x"), Format: pjrt.FormatHLOWithConfig}, true},
	"dimensions beyond memory":        {function("%x: tensor<99999999999x99999999999xf32>", "tensor<99999999999x99999999999xf32>", "return %x : tensor<99999999999x99999999999xf32>"), true},
	"a dimension of thirty digits":    {function("%x: tensor<999999999999999999999999999999xf32>", "tensor<f32>", ""), true},
	"lists nested deep":               {pjrt.Program{Code: []byte("module attributes {a = " + strings.Repeat("[", 1e5) + strings.Repeat("]", 1e5) + "} {}")}, true},
	"modules nested deep":             {pjrt.Program{Code: []byte(strings.Repeat("module {", 1e5) + strings.Repeat("}", 1e5))}, true},
	"types nested deep":               {function("%x: "+strings.Repeat("tuple<", 1e5)+"tensor<f32>"+strings.Repeat(">", 1e5), "tensor<f32>", ""), true},
	"a main that calls itself":        {function("%x: tensor<f32>", "tensor<f32>", "%o = func.call @main(%x) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32>"), true},
	"functions that call in a circle": {pjrt.Program{Code: []byte("module {\nfunc.func public @main(%x: tensor<f32>) -> tensor<f32> { %o = func.call @a(%x) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> }\nfunc.func private @a(%x: tensor<f32>) -> tensor<f32> { %o = call @b(%x) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> }\nfunc.func private @b(%x: tensor<f32>) -> tensor<f32> { %o = \"func.call\"(%x) {callee = @a} : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> }\n}")}, true},
	"Shardy and @Sharding":            {sharded(`stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[2]<=[2]}"}`), true},
	"Shardy and @Sharding, generic":   {sharded(`"stablehlo.custom_call"(%x) {call_target_name = "Sharding", mhlo.sharding = "{devices=[2]<=[2]}"}`), true},
	"Shardy and full to shard":        {sharded(`stablehlo.custom_call @SPMDFullToShardShape(%x) {mhlo.sharding = "{manual}"}`), true},
	"Shardy and shard to full":        {sharded(`stablehlo.custom_call @SPMDShardToFullShape(%x) {mhlo.sharding = "{devices=[2]<=[2]}"}`), true},
	"a replica group out of range":    {allReduce("[[0, 7]]", "1x2"), false},
	"a replica group with a double":   {allReduce("[[0, 0]]", "1x2"), false},
	"a replica group too small":       {allReduce("[[0]]", "1x1"), false},
	"a replica group below zero":      {allReduce("[[0, -1]]", "1x2"), false},
	"partition_id while partitioning": {function("", "tensor<ui32>", "%o = stablehlo.partition_id : tensor<ui32>\n return %o : tensor<ui32>"), false},
}

// sharded is a Shardy module of two devices whose body calls a custom call.
func sharded(call string) pjrt.Program {
	return pjrt.Program{Code: []byte(`module { sdy.mesh @mesh = <["d"=2]>
 func.func public @main(%x: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"d"}]>}) -> tensor<4xf32> {
  %o = ` + call + ` : (tensor<4xf32>) -> tensor<4xf32>
  return %o : tensor<4xf32> } }`)}
}

func allReduce(groups, shape string) pjrt.Program {
	return function("%x: tensor<4xf32>", "tensor<4xf32>", `%o = "stablehlo.all_reduce"(%x) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>):
 %s = stablehlo.add %a, %b : tensor<f32>
 stablehlo.return %s : tensor<f32> }) {replica_groups = dense<`+groups+`> : tensor<`+shape+`xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>, use_global_device_ids} : (tensor<4xf32>) -> tensor<4xf32>
 return %o : tensor<4xf32>`)
}

func TestHostileProgramsAreErrors(t *testing.T) {
	leaktest.Check(t)
	require.GreaterOrEqual(t, len(hostile), 30)
	c := plugintest.CPU(t, 2)
	for name, h := range hostile {
		t.Run(name, func(t *testing.T) {
			x, err := c.Compile(background, h.p, spmd(2))
			if err == nil {
				x.Close()
			}
			var ce *pjrt.CompileError
			var pe *pjrt.Error
			if h.ours {
				require.ErrorAs(t, err, &ce)
				return
			}
			require.ErrorAs(t, err, &pe)
			assert.NotContains(t, pe.Msg, "\n", "a summary is one line")
			assert.Equal(t, "compile", pe.Op)
		})
	}
}

func TestProgramsThatOnlyLookHostileCompile(t *testing.T) {
	c := plugintest.CPU(t, 2)
	for name, p := range map[string]pjrt.Program{
		"@Sharding in a comment":             {Code: append([]byte("// custom_call @Sharding\n"), addOne(2).Code...)},
		"@Sharding in a location":            {Code: []byte(strings.Replace(string(addOne(2).Code), "tensor<2x8xf32>\n    return", "tensor<2x8xf32> loc(\"stablehlo.custom_call @Sharding\")\n    return", 1))},
		"brackets in a string":               {Code: []byte(strings.Replace(string(addOne(2).Code), "module @add_one", "module @add_one attributes {mhlo.a = \""+strings.Repeat("[", 1000)+"\"}", 1))},
		"a function called twice":            {Code: []byte("module {\nfunc.func public @main(%x: tensor<f32>) -> tensor<f32> { %a = call @f(%x) : (tensor<f32>) -> tensor<f32>\n %o = call @f(%a) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> }\nfunc.func private @f(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\n}")},
		"@Sharding alone":                    function("%x: tensor<4xf32>", "tensor<4xf32>", "%o = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = \"{devices=[2]<=[2]}\"} : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"),
		"two hundred brackets":               {Code: []byte(strings.Replace(string(addOne(2).Code), "module @add_one", "module @add_one attributes {mhlo.a = "+strings.Repeat("[", 200)+strings.Repeat("]", 200)+"}", 1))},
		"a value named like the sdy dialect": {Code: []byte(strings.ReplaceAll(string(function("%sdy: tensor<4xf32>", "tensor<4xf32>", "%o = stablehlo.custom_call @Sharding(%sdy) {mhlo.sharding = \"{devices=[2]<=[2]}\"} : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>").Code), "%sdy", "%sdy"))},
	} {
		t.Run(name, func(t *testing.T) {
			o := spmd(2)
			o.Shardy = !strings.Contains(name, "alone") && !strings.Contains(name, "named")
			compile(t, c, p, o)
		})
	}
}
