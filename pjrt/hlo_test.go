package pjrt

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tpustrategy/tpustrategy/internal/protoint"
)

// FuzzParameterShapes checks that any input returns shapes or an error.
func FuzzParameterShapes(f *testing.F) {
	shape := protoint.AppendBytes(protoint.AppendInt(nil, 2, 11), 3, []byte{2, 3})
	shape = protoint.AppendBytes(shape, 5, protoint.AppendBytes(nil, 1, []byte{1, 0}))
	program := protoint.AppendBytes(protoint.AppendBytes(nil, 1, shape), 2,
		protoint.AppendBytes(protoint.AppendInt(nil, 2, 13), 4, shape))
	module := protoint.AppendBytes(nil, 4, program)
	f.Add(module, FormatHLO)
	f.Add(protoint.AppendBytes(nil, 1, module), FormatHLOWithConfig)
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

func TestParameterShapes(t *testing.T) {
	shape := func(xla int64, dims ...byte) []byte {
		return protoint.AppendBytes(protoint.AppendInt(nil, 2, xla), 3, dims)
	}
	program := protoint.AppendBytes(protoint.AppendBytes(nil, 1, shape(11, 2, 3)), 1, shape(4))
	got, rowMajor, err := parameterShapes(Program{Code: protoint.AppendBytes(nil, 4, program), Format: FormatHLO})
	if err != nil || len(got) != 2 || got[0].String() != "F32[2,3]" || got[1].String() != "S32[]" || !rowMajor {
		t.Fatalf("got %v, %v, %v", got, rowMajor, err)
	}
	columns := protoint.AppendBytes(shape(11, 2, 3), 5, protoint.AppendBytes(nil, 1, []byte{0, 1}))
	if _, rowMajor, err = parameterShapes(Program{Code: protoint.AppendBytes(nil, 4,
		protoint.AppendBytes(nil, 1, columns)), Format: FormatHLO}); err != nil || rowMajor {
		t.Fatalf("a column-major parameter: %v, %v", rowMajor, err)
	}
	if _, _, err = parameterShapes(Program{Code: protoint.AppendBytes(nil, 4, protoint.AppendBytes(nil, 1, shape(13))),
		Format: FormatHLO}); !errors.Is(err, errNotArray) {
		t.Fatalf("a tuple parameter: %v", err)
	}
	dynamic := protoint.AppendBytes(shape(11, 8), 6, []byte{1})
	static := protoint.AppendBytes(shape(11, 8), 6, []byte{0})
	for name, s := range map[string]struct {
		program []byte
		want    error
	}{
		"a bounded parameter": {protoint.AppendBytes(nil, 1, dynamic), errDynamicShape},
		"a bounded result":    {protoint.AppendBytes(nil, 2, dynamic), errDynamicShape},
		"a bounded element of the result": {protoint.AppendBytes(nil, 2,
			protoint.AppendBytes(protoint.AppendInt(nil, 2, 13), 4, dynamic)), errDynamicShape},
		"static shapes": {protoint.AppendBytes(protoint.AppendBytes(nil, 1, static), 2, static), nil},
	} {
		if _, _, err := parameterShapes(Program{Code: protoint.AppendBytes(nil, 4, s.program),
			Format: FormatHLO}); !errors.Is(err, s.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err = parameterShapes(Program{Code: nil, Format: FormatHLO}); !errors.Is(err, errMalformedHLO) {
		t.Fatalf("no program shape: %v", err)
	}
}
