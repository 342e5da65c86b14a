package pjrt

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Whatever the options, encoding gives an error of ours or a message that says what was asked.
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
