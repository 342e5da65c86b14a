package screen

import (
	"strings"
	"testing"
)

// The text scanner ends, does not panic.
func FuzzMLIR(f *testing.F) {
	f.Add("module { func.func @main() { call @main() : () -> () } }")
	f.Add("sdy.mesh stablehlo.custom_call @Sharding \"call_target_name\" = \"Sharding\"")
	f.Add("tensor<1x2x99999999999999999999xf32> // comment\n\"unterminated")
	f.Add(mlirBytecodeMagic + "\x00sdy\x00Sharding\x00")
	f.Add("@\"quoted\" @ = \"\\")
	f.Add("%0 = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = \"{devices=[2]}\"} : (tensor<4xf32>) -> tensor<4xf32>\n%1 = stablehlo.custom_call @SPMDFullToShardShape(%0) {mhlo.sharding = \"{manual}\"} : (tensor<4xf32>) -> tensor<2xf32>")
	f.Add("%o = \"stablehlo.custom_call\"(%x) <{call_target_name = \"mhlo.topk\", mhlo.attributes = {k = 1, largest}}> : (tuple<!t>) -> (i1, i2)")
	f.Add("stablehlo.pad %x, %c, low = [9223372036854775807], high = [-1], interior = [0] : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>")
	f.Add("!t = tensor<?xf32, #b> func.func private @main(%x: !t loc(\"a\"(#l))) -> (!t {a = \"b\"}) attributes {x} { // }")
	f.Add("\"func.func\"() <{function_type = () -> (), sym_name = \"f\\41\"}> ({ }) : () -> ()")
	f.Add(strings.Repeat("(<[{", 100))
	f.Fuzz(func(t *testing.T, s string) {
		_, _ = MLIR([]byte(s), Options{Shardy: len(s)%2 == 0, Host: len(s)%4 < 2})
	})
}

// Any text is read to operations of which every part is from it.
func FuzzRead(f *testing.F) {
	f.Add("%a = stablehlo.f @f(%x#1, %y) {a = 1 : i32, \"b\" = [2, #c<d>], e} : (tensor<4x?xf32, #b>, !t) -> (i1, tuple<i2>) loc(#l)")
	f.Add("\"a.b\"(%x) <{a = {b = \"}\"}}> ({ ^bb0: }, {}) {c} : () -> () // d")
	f.Add("stablehlo.pad %x, %c, low = [-1], high = array<i64: 2> : (")
	f.Add("#a = [b]x[c]->\n!t = tensor<?x!u>\nmodule { func.func @f(%x: !t {a = #a}) { return } {-# #-} }")
	f.Fuzz(func(t *testing.T, s string) {
		if newChecker(Options{}).tokens(s) != nil {
			return
		}
		top, _ := read(s)
		var look func(r *Region)
		look = func(r *Region) {
			for _, op := range r.Ops {
				if op.at < 0 || op.at > op.name || op.name >= op.end || op.end > len(s) {
					t.Fatalf("%s stands at %d, %d, %d of %d", op.Name, op.at, op.name, op.end, len(s))
				}
				if op.operandsAt > op.operandsEnd || op.operandsEnd > op.end {
					t.Fatalf("%s has operands at %d to %d", op.Name, op.operandsAt, op.operandsEnd)
				}
				for _, list := range [][]string{op.Operands, op.Ins, op.Outs, op.Results} {
					for _, e := range list {
						if e == "" || !strings.Contains(s, e) {
							t.Fatalf("%q is not from the text", e)
						}
					}
				}
				for _, inner := range op.Regions {
					look(inner)
				}
			}
		}
		look(top)
	})
}

func TestBytecodeThatMixesShardyAndGSPMDIsRefused(t *testing.T) {
	for text, bad := range map[string]bool{"\x00sdy\x00x\x00Sharding\x00": true, "\x00sdy\x00": false, "\x00Sharding\x00mhlo.sharding\x00": false, "\x00sdy\x00ShardingX\x00": false} {
		if _, err := MLIR([]byte(mlirBytecodeMagic+text), Options{}); (err != nil) != bad {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Bytecode shows its strings and no more.
func TestBytecodeIsScreenedByItsStrings(t *testing.T) {
	for text, want := range map[string]struct{ gspmd, shardy bool }{
		"\x00add_v1\x00main\x00":                                          {},
		"\x00Sharding\x00mhlo.sharding\x00":                               {shardy: true},
		"\x00Sharding\x00":                                                {true, true},
		"\x00SPMDFullToShardShape\x00mhlo.sharding\x00":                   {true, true},
		"\x00SPMDFullToShardShape\x00mhlo.sharding\x00{manual}\x00":       {shardy: true},
		"\x00mhlo.input_output_alias\x00":                                 {true, true},
		"\x00mhlo.use_auto_spmd_partitioning\x00":                         {shardy: true},
		"\x00xla.sdy.meshes\x00":                                          {true, true},
		"\x00xla.sdy.GlobalToLocalShape\x00":                              {true, true},
		"\x00my_xla.sdy.meshes\x00":                                       {},
		"\x00infeed_v1\x00":                                               {true, true},
		"\x00outfeed\x00":                                                 {true, true},
		"\x00infeed_rate\x00":                                             {},
		"\x00SliceToDynamic\x00":                                          {true, true},
		"\x00__onednn$matmul\x00":                                         {true, true},
		"\x00mhlo.topk\x00":                                               {true, true},
		"\x00mhlo.scan\x00":                                               {true, true},
		"\x00mhlo.topk\x00mhlo.attributes\x00":                            {},
		"\x00mhlo.num_partitions\x00mhlo.frontend_attributes\x00TopK\x00": {},
	} {
		for shardy, bad := range map[bool]bool{false: want.gspmd, true: want.shardy} {
			if _, err := MLIR([]byte(mlirBytecodeMagic+text), Options{Shardy: shardy}); (err != nil) != bad {
				t.Errorf("%q, Shardy %v: %v", text, shardy, err)
			}
		}
	}
}
