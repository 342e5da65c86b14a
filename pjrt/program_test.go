package pjrt_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tpustrategy/tpustrategy/internal/test/plugintest"
	"github.com/tpustrategy/tpustrategy/pjrt"
	"github.com/tpustrategy/tpustrategy/pjrt/leaktest"
)

const f4 = "tensor<4xf32>"

// call is a main of one argument that returns the first of outs, given by a custom call.
func call(in, text string, outs ...string) pjrt.Program {
	body := fmt.Sprintf("%%o = stablehlo.custom_call %s : (%s) -> %s\n return %%o : %[3]s", text, in, outs[0])
	if len(outs) > 1 {
		body = fmt.Sprintf("%%o:%d = stablehlo.custom_call %s : (%s) -> (%s)\n return %%o#0 : %s", len(outs), text, in, strings.Join(outs, ", "), outs[0])
	}
	return function("%x: "+in, outs[0], body)
}

// withAttributes is the identity in a module with these attributes.
func withAttributes(attributes string) pjrt.Program {
	return pjrt.Program{Code: fmt.Appendf(nil, "module @m attributes {%s} {\n func.func public @main(%%x: %s) -> %[2]s { return %%x : %[2]s }\n}", attributes, f4)}
}

func pad(low, high, interior string) pjrt.Program {
	return function("%x: "+f4, f4, fmt.Sprintf("%%c = stablehlo.constant dense<0.0> : tensor<f32>\n%%o = stablehlo.pad %%x, %%c, low = [%s], high = [%s], interior = [%s] : (%s, tensor<f32>) -> %[4]s\n return %%o : %[4]s", low, high, interior, f4))
}

func reduceWindow(low, high string) pjrt.Program {
	return function("%x: "+f4+", %z: tensor<f32>", f4, fmt.Sprintf(`%%o = "stablehlo.reduce_window"(%%x, %%z) ({ ^bb0(%%a: tensor<f32>, %%b: tensor<f32>):
 %%s = stablehlo.add %%a, %%b : tensor<f32>
 stablehlo.return %%s : tensor<f32> }) {window_dimensions = array<i64: 1>, padding = dense<[[%s, %s]]> : tensor<1x2xi64>} : (%s, tensor<f32>) -> %[3]s
 return %%o : %[3]s`, low, high, f4))
}

// chain is a main within whose call n others are, one in another.
func chain(n int) pjrt.Program {
	var b strings.Builder
	b.WriteString("module {\n")
	for i := range n + 1 {
		head, body := fmt.Sprintf("private @f%d", i), fmt.Sprintf("%%o = call @f%d(%%x) : (tensor<f32>) -> tensor<f32>", i+1)
		if i == 0 {
			head = "public @main"
		}
		if i == n {
			body = "%o = stablehlo.add %x, %x : tensor<f32>"
		}
		fmt.Fprintf(&b, "func.func %s(%%x: tensor<f32>) -> tensor<f32> {\n %s\n return %%o : tensor<f32>\n}\n", head, body)
	}
	b.WriteString("}")
	return pjrt.Program{Code: []byte(b.String())}
}

// manual goes from a full shape to shards and back, by GSPMD.
func manual(in, shard, out, shape string) pjrt.Program {
	return function("%x: "+f4, f4, fmt.Sprintf(`%%0 = stablehlo.custom_call @Sharding(%%x) {mhlo.sharding = "%s"} : (tensor<4xf32>) -> tensor<4xf32>
%%1 = stablehlo.custom_call @SPMDFullToShardShape(%%0) {mhlo.sharding = "%s"} : (tensor<4xf32>) -> tensor<%sxf32>
%%2 = stablehlo.custom_call @Sharding(%%1) {mhlo.sharding = "%[2]s"} : (tensor<%[3]sxf32>) -> tensor<%[3]sxf32>
%%3 = stablehlo.custom_call @SPMDShardToFullShape(%%2) {mhlo.sharding = "%[4]s"} : (tensor<%[3]sxf32>) -> tensor<4xf32>
return %%3 : tensor<4xf32>`, in, shard, shape, out))
}

// sharding is a sum with a parameter of a sharding of GSPMD.
func sharding(text string) pjrt.Program {
	return function(fmt.Sprintf("%%x: %s {mhlo.sharding = %q}", f4, text), f4, "%o = stablehlo.add %x, %x : "+f4+"\n return %o : "+f4)
}

// sorted is a sort by a comparator of one operation.
func sorted(compare, attributes string) pjrt.Program {
	const t = "tensor<100xf32>"
	return function("%x: "+t, t, fmt.Sprintf(`%%o = "stablehlo.sort"(%%x) ({ ^bb0(%%a: tensor<f32>, %%b: tensor<f32>):
 %s
 stablehlo.return %%c : tensor<i1> }) {%sdimension = 0 : i64} : (%[3]s) -> %[3]s
 return %%o : %[3]s`, compare, attributes, t))
}

func fft(in, length string) pjrt.Program {
	return function("%x: "+in, in, fmt.Sprintf("%%o = stablehlo.fft %%x, type = FFT, length = [%s] : (%s) -> %[2]s\n return %%o : %[2]s", length, in))
}

func permuted(attributes string) pjrt.Program {
	return function("%x: "+f4, f4, "%o = \"stablehlo.collective_permute\"(%x) {source_target_pairs = dense<[[0, 1], [1, 0]]> : tensor<2x2xi64>"+attributes+"} : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>")
}

// doubled is chain(n) with two calls in each function.
func doubled(n int) pjrt.Program {
	call := regexp.MustCompile(`%o = (call @f\d+)\(%x\)( : .*)`)
	return pjrt.Program{Code: call.ReplaceAll(chain(n).Code, []byte("%a = $1(%x)$2\n %o = $1(%a)$2"))}
}

func dilated(by, size string) pjrt.Program {
	return function("%x: tensor<1x4x1xf32>, %k: tensor<2x1x1xf32>", "tensor<1x"+size+"x1xf32>", "%o = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {lhs_dilate = ["+by+"]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x1xf32>, tensor<2x1x1xf32>) -> tensor<1x"+size+"x1xf32>\n return %o : tensor<1x"+size+"x1xf32>")
}

// divided is a constant by what z defines.
func divided(z string) pjrt.Program {
	return function("%a: tensor<i32>", "tensor<i32>", "%x = stablehlo.constant dense<1> : tensor<i32>\n"+z+"\n%o = stablehlo.divide %x, %z : tensor<i32>\n return %o : tensor<i32>")
}

const (
	bodyless   = "func.func private @f(tensor<4xf32>) -> tensor<4xf32>"
	callsF     = "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> { %o = call @f(%x) : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32> }"
	maxInt     = "9223372036854775807"
	halves     = "{devices=[2]<=[2]}"
	tokenType  = "!stablehlo.token"
	token      = "%t = stablehlo.create_token : !stablehlo.token\n"
	dynamicPad = "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%l = stablehlo.constant dense<" + maxInt + "> : tensor<1xi64>\n%h = stablehlo.constant dense<-" + maxInt + "> : tensor<1xi64>\n%i = stablehlo.constant dense<0> : tensor<1xi64>\n%o = stablehlo.dynamic_pad %x, %c, %l, %h, %i : (tensor<4xf32>, tensor<f32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<4xf32>\n return %o : tensor<4xf32>"
)

// crashing are programs that take the process of the CPU plugin down, or never return, with a word
// that the error has.
var crashing = map[string]struct {
	p    pjrt.Program
	says string
}{
	"a function without body":               {pjrt.Program{Code: []byte("module {\n" + bodyless + "\n" + callsF + "\n}")}, "@f has no body"},
	"one that nobody calls":                 {pjrt.Program{Code: []byte("module {\n func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }\n" + bodyless + " // {\n}")}, "@f has no body"},
	"one with attributes":                   {pjrt.Program{Code: []byte("module {\n" + bodyless + " attributes {a = \"{\"} loc(\"{\")\n" + callsF + "\n}")}, "@f has no body"},
	"one in generic form":                   {pjrt.Program{Code: []byte("module {\n\"func.func\"() <{function_type = (tensor<4xf32>) -> tensor<4xf32>, sym_name = \"f\"}> ({ // }\n}) : () -> ()\n" + callsF + "\n}")}, "@f"},
	"one in generic form, named after":      {pjrt.Program{Code: []byte("module {\n\"func.func\"() ({ // }\n}) {function_type = (tensor<4xf32>) -> tensor<4xf32>, sym_name = \"\\66\"} : () -> ()\n" + callsF + "\n}")}, "@f has no body"},
	"a main without body":                   {pjrt.Program{Code: []byte("module { func.func private @main(tensor<4xf32>) -> tensor<4xf32> }")}, "@main has no body"},
	"an alias of the module":                {withAttributes("mhlo.input_output_alias = [{alias={kind=0}}]"), "tf.aliasing_output"},
	"an alias by a quoted name":             {withAttributes(`"mhlo.input_output\5Falias" = [{alias={kind=0}}]`), "tf.aliasing_output"},
	"automatic partitioning":                {withAttributes("mhlo.use_auto_spmd_partitioning = true"), "use_auto_spmd_partitioning"},
	"exported meshes":                       {withAttributes(`mhlo.frontend_attributes = {xla.sdy.meshes = "garbage"}`), "sdy.mesh"},
	"exported meshes by a quoted name":      {withAttributes(`mhlo.frontend_attributes = {"xla.sdy.meshes" = "garbage"}`), "sdy.mesh"},
	"an exported sharding":                  {function("%x: "+f4+` {mhlo.frontend_attributes = {xla.sdy.sharding = "#sdy.sharding_per_value<[<@mesh, [{}]>]>"}}`, f4, "return %x : "+f4), "sdy.sharding"},
	"exported results":                      {withAttributes(`mhlo.frontend_attributes = {xla.sdy.tuple_results_shardings = "x"}`), "sdy.sharding"},
	"a GSPMD call for Shardy":               {manual(halves, "{manual}", halves, "2"), "Shardy"},
	"@Sharding without one":                 {call(f4, "@Sharding(%x) {api_version = 4 : i32}", f4), "mhlo.sharding"},
	"@Sharding with one elsewhere":          {call(f4, `@Sharding(%x) {api_version = 4 : i32, mhlo.frontend_attributes = {mhlo.sharding = "{manual}"}}`, f4), "mhlo.sharding"},
	"full to shard without sharding":        {call(f4, "@SPMDFullToShardShape(%x)", f4), "manual"},
	"shard to full without sharding":        {call(f4, "@SPMDShardToFullShape(%x)", f4), "manual"},
	"full to shard of no @Sharding":         {call(f4, `@SPMDFullToShardShape(%x) {mhlo.sharding = "{manual}"}`, "tensor<2xf32>"), "@Sharding"},
	"full to shard that is not manual":      {manual(halves, halves, halves, "2"), "manual"},
	"full to shard of another size":         {manual("{replicated}", "{manual}", halves, "2"), "shards differ"},
	"shard to full of another size":         {manual(halves, "{manual}", "{replicated}", "2"), "shards differ"},
	"@mhlo.topk without attributes":         {call(f4, "@mhlo.topk(%x)", "tensor<2xf32>", "tensor<2xi32>"), "chlo.top_k"},
	"@mhlo.topk with a text for k":          {call(f4, `@mhlo.topk(%x) {mhlo.attributes = {k = "x", largest = true}}`, "tensor<2xf32>", "tensor<2xi32>"), "k ="},
	"@mhlo.topk with a number for largest":  {call(f4, `@mhlo.topk(%x) {mhlo.attributes = {k = 2 : i64, largest = 3}}`, "tensor<2xf32>", "tensor<2xi32>"), "largest ="},
	"@mhlo.erf without attributes":          {call(f4, "@mhlo.erf(%x)", f4), "chlo.erf"},
	"@mhlo.erf with a text for attributes":  {call(f4, `@mhlo.erf(%x) {mhlo.attributes = "x"}`, f4), "chlo.erf"},
	"@mhlo.erf of another version":          {call(f4, "@mhlo.erf(%x) {api_version = 4 : i32, mhlo.attributes = {}}", f4), "api_version"},
	"@mhlo.scan":                            {call(f4, "@mhlo.scan(%x) {mhlo.attributes = {}}", f4), "@mhlo.scan"},
	"@mhlo.scan in generic form":            {function("%x: "+f4, f4, "%o = \"stablehlo.custom_call\"(%x) <{call_target_name = \"mhlo.scan\"}> : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"), "@mhlo.scan"},
	"@Eigh of a vector":                     {call(f4, "@Eigh(%x)", f4), "rank 2"},
	"@Eigh of a vector, two results":        {call(f4, "@Eigh(%x)", f4, f4), "rank 2"},
	"@Qr with one result":                   {call("tensor<4x4xf32>", "@Qr(%x)", "tensor<4x4xf32>"), "@Qr"},
	"reflectors without scales":             {call("tensor<4x4xf32>", "@ProductOfElementaryHouseholderReflectors(%x)", "tensor<4x4xf32>"), "scales"},
	"@mhlo.topk with a fraction for k":      {call(f4, `@mhlo.topk(%x) {mhlo.attributes = {k = 2.0 : f32, largest = true}}`, "tensor<2xf32>", "tensor<2xi32>"), "k ="},
	"@mhlo.erf with a side effect":          {call(f4, "@mhlo.erf(%x) {has_side_effect = true, mhlo.attributes = {}}", f4), "has_side_effect"},
	"@mhlo.erf with a configuration":        {call(f4, `@mhlo.erf(%x) {backend_config = "x", mhlo.attributes = {}}`, f4), "backend_config"},
	"@Eigh of another shape":                {call("tensor<4x4xf32>", `@Eigh(%x) {backend_config = "1,1,100,1e-6"}`, "tensor<3xf32>", "tensor<7xf32>"), "shape"},
	"@Qr of another shape":                  {call("tensor<4x4xf32>", "@Qr(%x)", "tensor<4x4xf32>", "tensor<7xf32>"), "shape"},
	"reflectors with one scale":             {function("%x: tensor<4x4xf32>, %s: "+"tensor<f32>", "tensor<4x4xf32>", "%o = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%x, %s) : (tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf32>\n return %o : tensor<4x4xf32>"), "scales"},
	"@TopK with one result":                 {call(f4, "@TopK(%x)", f4), "@TopK"},
	"@TopK with a quoted name":              {call(f4, `@"\54opK"(%x)`, f4), "@TopK"},
	"@TopK with a tuple of one":             {call(f4, "@TopK(%x)", "tuple<tensor<2xf32>>"), "@TopK"},
	"@SliceToDynamic":                       {call(f4, "@SliceToDynamic(%x)", f4), "set_dimension_size"},
	"@__onednn$matmul":                      {call(f4, "@__onednn$matmul(%x)", f4), "dot_general"},
	"an exported change of shape":           {call(f4, "@xla.sdy.GlobalToLocalShape(%x)", f4), "sdy.manual_computation"},
	"an exported change of shape, back":     {call(f4, "@xla.sdy.LocalToGlobalShape(%x)", f4), "sdy.manual_computation"},
	"a pad beyond memory":                   {pad(maxInt, "-"+maxInt, "0"), "pads"},
	"a pad below memory":                    {pad("-"+maxInt, maxInt, "0"), "pads"},
	"a pad just too large":                  {pad("2305843009213693951", "-2305843009213693951", "0"), "pads"},
	"a pad between elements":                {pad("0", "-9223372036854775803", "3074457345618258601"), "between"},
	"a pad of two dimensions":               {function("%x: tensor<4x4xf32>", "tensor<4x4xf32>", "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%o = stablehlo.pad %x, %c, low = [1099511627776, 1099511627776], high = [-1099511627776, -1099511627776], interior = [0, 0] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4x4xf32>\n return %o : tensor<4x4xf32>"), "pads"},
	"a pad in generic form":                 {function("%x: "+f4, f4, "%c = stablehlo.constant dense<0.0> : tensor<f32>\n%o = \"stablehlo.pad\"(%x, %c) <{edge_padding_low = array<i64: "+maxInt+">, edge_padding_high = array<i64: -"+maxInt+">, interior_padding = array<i64: 0>}> : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"), "pads"},
	"a dynamic pad of constants":            {function("%x: "+f4, f4, dynamicPad), "pads"},
	"a window padded beyond memory":         {reduceWindow(maxInt, "-"+maxInt), "pads"},
	"a bounded dynamic parameter":           {function("%x: tensor<?xf32, #stablehlo.bounds<4>>", "tensor<?xf32, #stablehlo.bounds<4>>", "return %x : tensor<?xf32, #stablehlo.bounds<4>>"), "bounded"},
	"a bounded dynamic result":              {function("%x: "+f4+", %n: tensor<i32>", "tensor<?xf32, #stablehlo.bounds<4>>", "%o = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>\n return %o : tensor<?xf32, #stablehlo.bounds<4>>"), "bounded"},
	"a bounded dynamic type by names":       {pjrt.Program{Code: []byte("#b = #stablehlo.bounds<4>\n!t = tensor<?xf32, #b>\nmodule { func.func public @main(%x: !t) -> !t { return %x : !t } }")}, "bounded"},
	"an infeed":                             {function("", f4, token+"%o:2 = \"stablehlo.infeed\"(%t) {infeed_config = \"\"} : (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)\n return %o#0 : tensor<4xf32>"), "infeed"},
	"an outfeed":                            {function("%x: "+f4, f4, token+"%o = \"stablehlo.outfeed\"(%x, %t) {outfeed_config = \"\"} : (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token\n return %x : tensor<4xf32>"), "infeed"},
	"a chain of calls just too long":        {chain(257), "chain"},
	"a chain of calls that ends the stack":  {chain(2000), "chain"},
	"a sharding of more devices than tiles": {sharding("{devices=[2]0,1,2,3}"), "tiles"},
	"a sharding of no tiles":                {sharding("{devices=[0]<=[0]}"), "tiles"},
	"a sharding that is none":               {sharding("{replicated}}"), "it is none"},
	"a sharding of the kind unknown":        {sharding("{unknown}"), "it is none"},
	"a manual parameter of GSPMD":           {sharding("{manual}"), "{manual}"},
	"layouts of another type":               {withAttributes("mhlo.xla_entry_computation_parameter_layouts = [dense<0> : tensor<1xi32>]"), "layout"},
	"more layouts than results":             {withAttributes("mhlo.xla_entry_computation_result_layout = [dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>]"), "layout"},
	"a part of an axis beyond memory":       {sharded(`sdy.sharding_constraint %x <@mesh, [{"d":(` + maxInt + ")" + maxInt + "}]>"), "axis"},
	"a mesh beyond memory":                  {pjrt.Program{Code: []byte(strings.Replace(string(addOne(2).Code), `"d"=2]`, `"d"=`+maxInt+`]`, 1))}, "mesh"},
	"a convolution dilated for ever":        {dilated("1000000000000", "3000000000000"), "dilates"},
	"a dimension of a convolution":          {function("%x: tensor<1x4x1xf32>, %k: tensor<2x1x1xf32>", "tensor<1x3x1xf32>", "%o = stablehlo.convolution(%x, %k) dim_numbers = [b, "+maxInt+", f]x[0, i, o]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x4x1xf32>, tensor<2x1x1xf32>) -> tensor<1x3x1xf32>\n return %o : tensor<1x3x1xf32>"), "convolution"},
	"a sort by less or equal":               {sorted("%c = stablehlo.compare LE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>", ""), "LE"},
	"a sort by equality, in generic form":   {sorted("%c = \"stablehlo.compare\"(%a, %b) <{comparison_direction = #stablehlo<comparison_direction EQ>}> : (tensor<f32>, tensor<f32>) -> tensor<i1>", "is_stable = false, "), "EQ"},
	"a sort that says true":                 {sorted("%c = stablehlo.constant dense<true> : tensor<i1>", ""), "true"},
	"a transform longer than its axis":      {fft("tensor<4xcomplex<f32>>", "8"), "length"},
	"a transform of another axis":           {fft("tensor<2x2xcomplex<f32>>", "2, 4"), "length"},
	"a constant divided by zero":            {divided("%z = stablehlo.constant dense<0> : tensor<i32>"), "divides"},
	"one by a list with a zero":             {function("", "tensor<2xi32>", "%x = stablehlo.constant dense<1> : tensor<2xi32>\n%z = stablehlo.constant dense<[1, 0]> : tensor<2xi32>\n%o = \"stablehlo.remainder\"(%x, %z) : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>\n return %o : tensor<2xi32>"), "divides"},
	"a decomposition of an aliased type":    {pjrt.Program{Code: []byte("!t = tensor<4xf32>\nfunc.func @main(%x: !t) -> !t {\n%o:2 = stablehlo.custom_call @Qr(%x) : (!t) -> (!t, !t)\nreturn %o#0 : !t }")}, "rank 2"},
	"@Eigh of a token":                      {call(tokenType, "@Eigh(%x)", tokenType, tokenType), "rank 2"},
	"@Qr of a tuple":                        {call("tuple<"+f4+">", "@Qr(%x)", "tuple<"+f4+">", f4), "rank 2"},
	"reflectors of a token":                 {function("%x: "+tokenType+", %s: tensor<f32>", tokenType, "%o = stablehlo.custom_call @ProductOfElementaryHouseholderReflectors(%x, %s) : (!stablehlo.token, tensor<f32>) -> !stablehlo.token\n return %o : !stablehlo.token"), "scales"},
	"@TopK that gives more than there is":   {call(f4, "@TopK(%x)", "tensor<10xf32>", "tensor<10xi32>"), "past the end"},
	"tiles of a token":                      {function("%x: "+tokenType+` {mhlo.sharding = "`+halves+`"}, %y: `+f4, f4, "return %y : "+f4), "tiles"},
	"tiles of a token, in generic form":     {pjrt.Program{Code: []byte("\"func.func\"() <{arg_attrs = [{mhlo.sharding = \"" + halves + "\"}], function_type = (!stablehlo.token) -> (), sym_name = \"main\"}> ({ ^bb0(%x: !stablehlo.token): \"func.return\"() : () -> () }) : () -> ()")}, "tiles"},
	"tiles of what is changed":              {function("%x: "+tokenType, tokenType, "%o = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = \""+halves+"\"} : (!stablehlo.token) -> !stablehlo.token\n return %o : !stablehlo.token"), "tiles"},
	"a quantized type":                      {function("%x: tensor<4x!quant.uniform<i8:f32, 1.0>>", f4, "%o = stablehlo.uniform_dequantize %x : (tensor<4x!quant.uniform<i8:f32, 1.0>>) -> "+f4+"\n return %o : "+f4), "quantized"},
	"an array of indices":                   {function("%x: "+f4+", %y: tensor<f32>", f4, "%o = chlo.broadcast_add %x, %y {broadcast_dimensions = array<index>} : ("+f4+", tensor<f32>) -> "+f4+"\n return %o : "+f4), "array<i64"},
	"an array of an aliased type":           {pjrt.Program{Code: []byte("!e = index\nfunc.func @main(%x: tensor<4xf32>, %y: tensor<f32>) -> tensor<4xf32> {\n%o = chlo.broadcast_add %x, %y {broadcast_dimensions = array<!e>} : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>\nreturn %o : tensor<4xf32> }")}, "array<i64"},
	"tiles of a dynamic size":               {function("%x: tensor<?xf32> {mhlo.sharding = \""+halves+"\"}", "tensor<?xf32>", "return %x : tensor<?xf32>"), "tiles"},
	"a comparison of a dynamic size":        {function("%y: tensor<4xi32>", "tensor<?xi1>", "%x = stablehlo.convert %y : (tensor<4xi32>) -> tensor<?xi32>\n%o = stablehlo.compare EQ, %x, %x : (tensor<?xi32>, tensor<?xi32>) -> tensor<?xi1>\n return %o : tensor<?xi1>"), "dynamic size"},
	"@mhlo.topk with another's attribute":   {call(f4, "@mhlo.topk(%x) {mhlo.attributes = {comparison_direction = #stablehlo<comparison_direction EQ>, largest = true}}", "tensor<2xf32>", "tensor<2xi32>"), "comparison_direction"},
	"operations without a type":             {pjrt.Program{Code: []byte("module { " + strings.Repeat("stablehlo.pad ", 1e4) + "}")}, "without a type"},
}

func TestProgramsThatCrashTheCompilerAreRefusedBeforeIt(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
	for name, h := range crashing {
		t.Run(name, func(t *testing.T) {
			for _, o := range []pjrt.CompileOptions{{}, {Partitions: 2, SPMD: true}, spmd(2)} {
				if h.says == "Shardy" && !o.Shardy {
					continue
				}
				x, err := c.Compile(background, h.p, o)
				if err == nil {
					x.Close()
				}
				var ce *pjrt.CompileError
				require.ErrorAs(t, err, &ce)
				assert.Contains(t, err.Error(), h.says)
			}
		})
	}
}

func TestWhatCompilersTakeIsLeftToThem(t *testing.T) {
	leaktest.Check(t)
	c := plugintest.CPU(t, 2)
	gspmd := pjrt.CompileOptions{Partitions: 2, SPMD: true}
	m4 := "tensor<4x4xf32>"
	for name, tc := range map[string]struct {
		p pjrt.Program
		o pjrt.CompileOptions
	}{
		"manual shards by GSPMD":                {manual(halves, "{manual}", halves, "2"), gspmd},
		"@mhlo.topk":                            {call(f4, "@mhlo.topk(%x) {mhlo.attributes = {k = 2 : i64, largest = true}, mhlo.version = 1 : i64}", "tensor<2xf32>", "tensor<2xi32>"), spmd(2)},
		"@mhlo.erf":                             {call(f4, "@mhlo.erf(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64}", f4), spmd(2)},
		"@mhlo.erf with what it may have":       {function("%x: "+f4, f4, "%o = \"stablehlo.custom_call\"(%x) <{backend_config = \"\", call_target_name = \"mhlo.erf\", called_computations = []}> {mhlo.sharding = \"{replicated}\", mhlo.attributes = {}, mhlo.version = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32>\n return %o : tensor<4xf32>"), spmd(2)},
		"shardings of tiles by GSPMD":           {sharding("{devices=[2]1,0}"), gspmd},
		"a permutation of partitions":           {permuted(", channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"), spmd(2)},
		"a permutation of replicas":             {permuted(""), pjrt.CompileOptions{Replicas: 2}},
		"calls that double a few times":         {doubled(5), pjrt.CompileOptions{}},
		"a sort by greater or equal":            {sorted("%c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>", ""), pjrt.CompileOptions{}},
		"a dilated convolution":                 {dilated("3", "9"), pjrt.CompileOptions{}},
		"a sort by less":                        {sorted("%c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>", ""), pjrt.CompileOptions{}},
		"a stable sort by less or equal":        {sorted("%c = stablehlo.compare LE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>", "is_stable = true, "), pjrt.CompileOptions{}},
		"a sort by not less or equal":           {sorted("%d = stablehlo.compare LE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>\n%c = stablehlo.not %d : tensor<i1>", ""), pjrt.CompileOptions{}},
		"a transform of the last axis":          {fft("tensor<2x4xcomplex<f32>>", "4"), pjrt.CompileOptions{}},
		"a constant divided by another":         {divided("%z = stablehlo.constant dense<2> : tensor<i32>"), pjrt.CompileOptions{}},
		"a constant divided by an argument":     {divided("%z = stablehlo.add %a, %a : tensor<i32>"), pjrt.CompileOptions{}},
		"@Qr of a batch":                        {call("tensor<3x2x4xf32>", "@Qr(%x)", "tensor<3x2x4xf32>", "tensor<3x2xf32>"), pjrt.CompileOptions{}},
		"@TopK":                                 {call(f4, "@TopK(%x)", "tensor<2xf32>", "tensor<2xi32>"), spmd(2)},
		"@TopK with a tuple":                    {call(f4, "@TopK(%x)", "tuple<tensor<2xf32>, tensor<2xi32>>"), pjrt.CompileOptions{}},
		"@Eigh":                                 {call(m4, `@Eigh(%x) {backend_config = "1,1,100,1e-6"}`, m4, f4), spmd(2)},
		"@Qr":                                   {call(m4, "@Qr(%x)", m4, f4), spmd(2)},
		"the longest chain of calls":            {chain(256), spmd(2)},
		"a pad that is cropped":                 {pad("1000000000000", "-1000000000000", "0"), pjrt.CompileOptions{}},
		"a window":                              {reduceWindow("1", "-1"), pjrt.CompileOptions{}},
		"no automatic partitioning":             {withAttributes("mhlo.use_auto_spmd_partitioning = false"), spmd(2)},
		"a text of exported meshes":             {withAttributes(`mhlo.a = "xla.sdy.meshes = x, mhlo.input_output_alias = y"`), spmd(2)},
		"a value named like an attribute":       {function("%x: "+f4, f4, "%xla.sdy.meshes = stablehlo.add %x, %x : tensor<4xf32>\n%mhlo.input_output_alias-custom_call = stablehlo.add %xla.sdy.meshes, %x : tensor<4xf32>\n return %mhlo.input_output_alias-custom_call : tensor<4xf32>"), spmd(2)},
		"an infeed in a location":               {function("%x: "+f4, f4, "%o = stablehlo.add %x, %x : tensor<4xf32> loc(\"stablehlo.infeed\"(\"stablehlo.custom_call\"(\"x\")))\n return %o : tensor<4xf32> loc(callsite(\"a\" at \"stablehlo.outfeed\"(\"y\")))"), spmd(2)},
		"a function named infeed":               {pjrt.Program{Code: []byte("module { func.func private @stablehlo.infeed(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }\nfunc.func public @main(%x: tensor<f32>) -> tensor<f32> { %o = call @stablehlo.infeed(%x) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> } }")}, spmd(2)},
		"functions with all that they can have": {pjrt.Program{Code: []byte("module { func.func private @f(%x: tensor<f32> {mhlo.a = \"(\"} loc(\"x\")) -> (tensor<f32> {mhlo.b = \"{\"}) attributes {mhlo.c = [\")\"]} // {\n { return %x : tensor<f32> }\nfunc.func public @main(%x: tensor<f32>) -> tensor<f32> attributes {} { %o = call @f(%x) : (tensor<f32>) -> tensor<f32>\n return %o : tensor<f32> } }")}, spmd(2)},
		"a function in generic form":            {pjrt.Program{Code: []byte("module {\n\"func.func\"() <{function_type = (tensor<4xf32>) -> tensor<4xf32>, sym_name = \"f\"}> ({ ^bb0(%x: tensor<4xf32>): \"func.return\"(%x) : (tensor<4xf32>) -> () }) : () -> ()\n" + callsF + "\n}")}, spmd(2)},
		"bounds within":                         {function("%x: "+f4+", %n: tensor<i32>", "tensor<i32>", "%o = stablehlo.set_dimension_size %x, %n, dim = 0 : (tensor<4xf32>, tensor<i32>) -> tensor<?xf32, #stablehlo.bounds<4>>\n %s = stablehlo.get_dimension_size %o, dim = 0 : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<i32>\n return %s : tensor<i32>"), pjrt.CompileOptions{}},
	} {
		t.Run(name, func(t *testing.T) { compile(t, c, tc.p, tc.o) })
	}
}
