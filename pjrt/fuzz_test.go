package pjrt

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Whatever the options, encoding gives an error of ours or a message that says
// what was asked.
func FuzzCompileOptions(f *testing.F) {
	f.Add(1, 1, true, true, []byte{0}, "name", "value", int64(1), 0.5)
	f.Add(2, 2, true, false, []byte{0, 1, 2, 3}, "", "", int64(-1), 1e300)
	f.Add(-1, 1<<30, false, false, []byte{}, "\x00", "\xff", int64(0), 0.0)
	f.Fuzz(func(t *testing.T, replicas, partitions int, spmd, shardy bool, ids []byte, name, value string, n int64, x float64) {
		o := CompileOptions{Replicas: replicas, Partitions: partitions, SPMD: spmd, Shardy: shardy, DumpDir: value,
			Overrides: map[string]any{name: value, name + "n": n, name + "x": x, name + "b": spmd}}
		if p := partitions; p > 0 && p < 16 {
			for len(ids) > 0 {
				k := min(p, len(ids))
				var row []int
				for _, id := range ids[:k] {
					row = append(row, int(id))
				}
				o.DeviceAssignment, ids = append(o.DeviceAssignment, row), ids[k:]
			}
		}
		b, err := o.encode(256, func(id int) bool { return id < 256 })
		if err != nil {
			var ce *CompileError
			if !errors.As(err, &ce) {
				t.Fatalf("untyped: %v", err)
			}
			return
		}
		again, _ := o.encode(256, func(id int) bool { return id < 256 })
		if !bytes.Equal(b, again) {
			t.Fatal("encoding depends on map order")
		}
		build, err := field(b, 3)
		if err != nil {
			t.Fatal(err)
		}
		got := map[protowire.Number]uint64{}
		if err := eachField(build, func(n protowire.Number, v uint64, m []byte) error {
			if m == nil {
				got[n] = v
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if int64(got[1]) != -1 || int(got[4]) != max(replicas, 1) || int(got[5]) != max(partitions, 1) || got[6] != protowire.EncodeBool(spmd) || got[19] != protowire.EncodeBool(shardy) {
			t.Fatalf("options %+v became %v", o, got)
		}
	})
}

// Any text as an operation is read to a place within it.
func FuzzReadOperation(f *testing.F) {
	f.Add("@f(%x#1, %y) {a = 1 : i32, \"b\" = [2, #c<d>], e} : (tensor<4x?xf32, #b>, !t) -> (i1, tuple<i2>) loc(#l)")
	f.Add("(%x) <{a = {b = \"}\"}}> ({ ^bb0: }, {}) {c} : () -> () // d")
	f.Add("%x, %c, low = [-1], high = array<i64: 2> : (")
	f.Fuzz(func(t *testing.T, s string) {
		op, ok := readOperation(s)
		if op.n < 0 || op.n > len(s) {
			t.Fatalf("read %d of %d bytes", op.n, len(s))
		}
		if ok && op.n == 0 {
			t.Fatal("read nothing")
		}
		for _, list := range [][]string{op.operands, op.ins, op.outs, op.regions} {
			for _, e := range list {
				if e == "" || !strings.Contains(s, e) {
					t.Fatalf("%q is not from the text", e)
				}
			}
		}
	})
}

// Any bytes as a program proto give shapes or an error, in bounded depth.
func FuzzParameterShapes(f *testing.F) {
	shape := appendMessage(appendInt(nil, 2, 11), 3, []byte{2, 3})
	shape = appendMessage(shape, 5, appendMessage(nil, 1, []byte{1, 0}))
	program := appendMessage(appendMessage(nil, 1, shape), 2, appendMessage(appendInt(nil, 2, 13), 4, shape))
	module := appendMessage(nil, 4, program)
	f.Add(module, FormatHLO)
	f.Add(appendMessage(nil, 1, module), FormatHLOWithConfig)
	f.Add(bytes.Repeat([]byte{0x0a, 0x02}, 100), FormatHLO)
	f.Add([]byte{0xff}, "mlir")
	f.Fuzz(func(t *testing.T, b []byte, format string) {
		shapes, _, err := parameterShapes(Program{Code: b, Format: format})
		if err == nil && shapes == nil {
			t.Fatal("neither shapes nor error")
		}
		for _, s := range shapes {
			if err == nil && (s == nil || s.String() == "") {
				t.Fatal("a nil shape")
			}
		}
	})
}

func TestParameterShapesOfAModule(t *testing.T) {
	shape := func(xla int64, dims ...byte) []byte { return appendMessage(appendInt(nil, 2, xla), 3, dims) }
	program := appendMessage(appendMessage(nil, 1, shape(11, 2, 3)), 1, shape(4))
	got, rowMajor, err := parameterShapes(Program{Code: appendMessage(nil, 4, program), Format: FormatHLO})
	if err != nil || len(got) != 2 || got[0].String() != "F32[2,3]" || got[1].String() != "S32[]" || !rowMajor {
		t.Fatalf("got %v, %v, %v", got, rowMajor, err)
	}
	columns := appendMessage(shape(11, 2, 3), 5, appendMessage(nil, 1, []byte{0, 1}))
	if _, rowMajor, err = parameterShapes(Program{Code: appendMessage(nil, 4, appendMessage(nil, 1, columns)), Format: FormatHLO}); err != nil || rowMajor {
		t.Fatalf("a column-major parameter: %v, %v", rowMajor, err)
	}
	if _, _, err = parameterShapes(Program{Code: appendMessage(nil, 4, appendMessage(nil, 1, shape(13))), Format: FormatHLO}); !errors.Is(err, errNoArray) {
		t.Fatalf("a tuple parameter: %v", err)
	}
	if _, _, err = parameterShapes(Program{Code: nil, Format: FormatHLO}); !errors.Is(err, errHLO) {
		t.Fatalf("no program shape: %v", err)
	}
}

// The text scanner ends, does not panic, and gives only errors of ours.
func FuzzInspect(f *testing.F) {
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
		if err := inspect([]byte(s), len(s)%2 == 0); err != nil {
			var ce *CompileError
			if !errors.As(err, &ce) {
				t.Fatalf("untyped: %v", err)
			}
		}
	})
}

func FuzzUnseal(f *testing.F) {
	f.Add(seal([]byte("payload")))
	f.Add([]byte(serialMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		payload, err := unseal(b)
		if err == nil && !bytes.Equal(seal(payload), b) {
			t.Fatal("accepted what seal did not write")
		}
	})
}

func TestBytecodeThatMixesShardyAndGSPMDIsRefused(t *testing.T) {
	for text, bad := range map[string]bool{"\x00sdy\x00x\x00Sharding\x00": true, "\x00sdy\x00": false, "\x00Sharding\x00mhlo.sharding\x00": false, "\x00sdy\x00ShardingX\x00": false} {
		if err := inspect([]byte(mlirBytecodeMagic+text), false); (err != nil) != bad {
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
			if err := inspect([]byte(mlirBytecodeMagic+text), shardy); (err != nil) != bad {
				t.Errorf("%q, Shardy %v: %v", text, shardy, err)
			}
		}
	}
}

func FuzzReadAssignment(f *testing.F) {
	f.Add(assignmentProto([][]int{{0, 1}, {2, 3}}))
	f.Add(appendInt(nil, 1, 1<<40))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := readAssignment(b)
		if err != nil || len(a) == 0 {
			return
		}
		again, err := readAssignment(assignmentProto(a))
		if err != nil || !reflect.DeepEqual(a, again) {
			t.Fatalf("%v became %v, %v", a, again, err)
		}
	})
}
